#include "serving/serving_engine.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "serving/active_requests.h"
#include "serving/engine_inbox.h"
#include "serving/serving_loop.h"

namespace ridge {
namespace {

int context_limit(const Runner& runner, const ServingOptions& options) {
  const RunnerOptions& bounds = runner.options();
  int limit = runner.page_count() * bounds.page_tokens;
  const int own = runner.weights().architecture.max_context;
  if (own > 0) limit = std::min(limit, own);
  return options.max_context > 0 ? std::min(limit, options.max_context) : limit;
}

// Throws OptionError where the request can never run; bounds its lengths by the context.
void check_and_bound(ServingRequest& request, int vocab, int context, int max_drafts) {
  const int prompt = static_cast<int>(request.prompt.size());
  if (prompt == 0) throw OptionError("prompt", "the prompt is empty: there is nothing to continue");
  if (prompt >= context) {
    throw OptionError("prompt", fmt::format("the prompt's {} tokens leave no room in a context of "
                                            "{} tokens",
                                            prompt, context));
  }
  for (const Token token : request.prompt) {
    if (token >= 0 && token < vocab) continue;
    throw OptionError("prompt",
                      fmt::format("token {} is outside the vocabulary of {}", token, vocab));
  }
  if (request.generate.max_tokens < 1) {
    throw OptionError("max_tokens", "max_tokens must be at least 1");
  }
  request.generate.max_tokens = std::min(request.generate.max_tokens, context - prompt);
  request.generate.min_tokens =
      std::clamp(request.generate.min_tokens, 0, request.generate.max_tokens);
  if (request.prompt_logprobs > kMaxCandidates) {
    throw OptionError("prompt_logprobs", fmt::format("at most {}", kMaxCandidates));
  }
  if (request.max_drafts.value_or(0) > max_drafts) {
    throw OptionError("max_drafts", fmt::format("at most {} drafts here", max_drafts));
  }
}

}  // namespace

struct ServingEngine::Impl {
  Impl(std::unique_ptr<Runner> runner, ServingOptions options, Outputs outputs,
       ServingObserver* observer)
      : context(context_limit(*runner, options)),
        max_drafts(options.max_drafts),
        inbox(options.max_waiting),
        loop(std::move(runner), std::move(options), std::move(outputs), observer, inbox),
        thread([this] { loop.run(); }) {}
  ~Impl() {
    inbox.stop();
    thread.join();
  }

  int context, max_drafts;
  std::atomic<RequestId> last_id = 0;
  EngineInbox inbox;
  ServingLoop loop;
  std::thread thread;  // last: it uses everything above
};

ServingEngine::ServingEngine(std::unique_ptr<Runner> runner, ServingOptions options,
                             Outputs outputs, ServingObserver* observer)
    : impl_(std::make_unique<Impl>(std::move(runner), std::move(options), std::move(outputs),
                                   observer)) {}
ServingEngine::~ServingEngine() = default;

const Runner& ServingEngine::runner() const { return impl_->loop.runner(); }
int ServingEngine::max_context() const { return impl_->context; }
int ServingEngine::max_waiting() const { return impl_->inbox.max_waiting(); }
int ServingEngine::max_drafts() const { return impl_->max_drafts; }
RequestId ServingEngine::new_id() { return ++impl_->last_id; }

bool ServingEngine::submit(ServingRequest request) {
  const Weights& weights = runner().weights();
  check_and_bound(request, weights.architecture.vocab, impl_->context, impl_->max_drafts);
  return impl_->inbox.submit(std::make_unique<ActiveRequest>(weights, std::move(request)));
}

void ServingEngine::cancel(RequestId id) { impl_->inbox.cancel(id); }
void ServingEngine::request_look() { impl_->inbox.request_look(); }
bool ServingEngine::idle() const { return impl_->inbox.idle(); }
std::optional<std::string> ServingEngine::failure() const { return impl_->inbox.failure(); }

}  // namespace ridge
