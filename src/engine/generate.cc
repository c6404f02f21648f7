#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_set(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

// The runner must not keep a pointer to a profile that an exception ends.
class ProfileScope {
 public:
  explicit ProfileScope(Runner& runner) : runner_(runner) {}
  ~ProfileScope() { runner_.set_profile(nullptr); }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Runner& runner_;
};

// Draws the next token from the last step's one row of logits, from its top where that settles the
// choice. A step's time is that of run() and of the wait for its result. The search on the host is
// not part of it: sample() of the CPU runner.
class TokenSource {
 public:
  explicit TokenSource(Runner& runner) : runner_(runner) {}

  const Sampled& next(const Generation& generation, Ledger& ledger) {
    const Sampler& sampler = generation.sampler();
    const SampleContext context = generation.context();
    if (sampler.request(context, workspace_, request_)) {
      const Clock::time_point start = Clock::now();
      runner_.sample({&request_, 1});
      const TopLogits& top = runner_.fetch().front();
      ledger.add_seconds(seconds_since(start));
      if (sampler.sample(top, request_, context, workspace_, sampled_)) return sampled_;
    }
    const Clock::time_point start = Clock::now();
    const std::span<const float> logits = runner_.logits();
    ledger.add_seconds(seconds_since(start));
    sampler.sample(logits, context, workspace_, sampled_);
    return sampled_;
  }

 private:
  Runner& runner_;
  SamplerWorkspace workspace_;
  TopLogitsRequest request_;
  Sampled sampled_;
};

}  // namespace

bool prefill(Runner& runner, KvSequence& sequence, std::span<const Token> tokens, int logits,
             Ledger& ledger, const std::atomic<bool>* cancelled) {
  const auto chunk = static_cast<size_t>(runner.options().max_tokens);
  std::vector<PageCopy> copies;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    if (is_set(cancelled)) return false;
    const std::span<const Token> part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
    const int count = static_cast<int>(part.size());
    const bool last = at + part.size() == tokens.size();
    copies.clear();
    if (!sequence.reserve(count, copies)) {
      throw Error("the KV cache has no room for {} more tokens", count);
    }
    if (!copies.empty()) runner.copy_pages(copies);
    const Slice slice{part, sequence.length(), sequence.pages(), last ? logits : 0};
    const Clock::time_point start = Clock::now();
    runner.run({&slice, 1});
    sequence.commit(count);
    const Sequences work{1, double(count), double(slice.past), double(slice.logits)};
    ledger.record({&work, 1}, seconds_since(start));
  }
  return true;
}

Generated generate(Runner& runner, KvSequence& sequence, std::span<const Token> prompt,
                   const GenerateOptions& options,
                   const std::function<void(std::string_view)>& show,
                   std::span<const Token> history) {
  const Clock::time_point begin = Clock::now();
  Generation generation(runner.weights(), options, history, prompt);
  const int room = runner.options().cache_tokens;
  if (sequence.length() + int(prompt.size()) > room) {
    throw Error("the prompt's {} tokens do not fit a context of {}: raise --context",
                sequence.length() + int(prompt.size()), room);
  }
  Generated made;
  const auto emit = [&](const std::string& text) {
    if (text.empty()) return;
    made.text += text;
    if (show) show(text);
  };
  const ProfileScope profile_scope(runner);
  TokenSource source(runner);
  const auto accept = [&](const Sampled& sampled) {
    made.sampled.push_back(sampled);
    emit(generation.push(sampled.token));
  };

  runner.set_profile(options.profile ? &made.prompt_profile : nullptr);
  if (prefill(runner, sequence, prompt, 1, made.prompt, options.cancelled)) {
    const Sampled& first = source.next(generation, made.prompt);
    made.first_token_s = seconds_since(begin);
    accept(first);
  } else {
    generation.end(EndReason::cancelled);
  }
  runner.set_profile(options.profile ? &made.generation_profile : nullptr);
  while (!generation.ended()) {
    if (sequence.length() >= room) {
      generation.end(EndReason::context);
      break;
    }
    const Token last = generation.generated().back();
    if (!prefill(runner, sequence, {&last, 1}, 1, made.generation, options.cancelled)) {
      generation.end(EndReason::cancelled);
      break;
    }
    accept(source.next(generation, made.generation));
  }
  if (made.first_token_s > 0) made.generation_s = seconds_since(begin) - made.first_token_s;
  emit(generation.finish());
  made.tokens.assign(generation.generated().begin(), generation.generated().end());
  made.end = *generation.ended();
  return made;
}

}  // namespace ridge
