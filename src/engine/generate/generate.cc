#include "engine/generate/generate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

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
  TokenSource(Runner& runner, const Generation& generation, Ledger& ledger)
      : runner_(runner), generation_(generation), ledger_(ledger) {}

  const Sampled& next() {
    if (request(0) && sampled_from_top()) return sampled_;
    const Clock::time_point start = Clock::now();
    const std::span<const float> logits = runner_.logits();
    ledger_.add_seconds(seconds_since(start));
    generation_.sampler().sample(logits, generation_.context(), workspace_, sampled_);
    return sampled_;
  }

  // The same in two parts, for a sampler whose draws the device makes: the draw from the last
  // step's row is queued, and taken when further steps may be queued already.
  void queue() {
    if (!request(in_flight())) throw Error(kNothingLeft);
  }
  const Sampled& take() {
    if (!sampled_from_top()) throw Error(kNothingLeft);
    return sampled_;
  }
  size_t in_flight() const { return requested_ - taken_; }

 private:
  static constexpr const char* kNothingLeft = "every token is banned: nothing is left to draw from";

  // Behind `unknown` tokens that were not taken yet. False: the whole row decides.
  bool request(size_t unknown) {
    SampleContext context = generation_.context();
    context.unknown = unknown;
    TopLogitsRequest& request = requests_[requested_ % requests_.size()];
    if (!generation_.sampler().request(context, workspace_, request)) return false;
    const Clock::time_point start = Clock::now();
    runner_.sample({&request, 1});
    ledger_.add_seconds(seconds_since(start));
    ++requested_;
    return true;
  }
  // Waits for the oldest draw. False: the whole row decides.
  bool sampled_from_top() {
    const TopLogitsRequest& request = requests_[taken_++ % requests_.size()];
    const Clock::time_point start = Clock::now();
    const TopLogits& top = runner_.fetch().front();
    ledger_.add_seconds(seconds_since(start));
    return generation_.sampler().sample(top, request, generation_.context(), workspace_, sampled_);
  }

  Runner& runner_;
  const Generation& generation_;
  Ledger& ledger_;
  SamplerWorkspace workspace_;
  std::array<TopLogitsRequest, Runner::kMaxStepsInFlight> requests_;
  size_t requested_ = 0, taken_ = 0;
  Sampled sampled_;
};

// Drops the steps that were queued and are not kept.
class StepsInFlight {
 public:
  StepsInFlight(Runner& runner, KvSequence& sequence, const TokenSource& source)
      : runner_(runner), sequence_(sequence), source_(source), kept_(sequence.length()) {}
  ~StepsInFlight() {
    sequence_.truncate(kept_);
    try {
      for (size_t i = source_.in_flight(); i > 0; --i) runner_.fetch();
    } catch (const std::exception&) {  // the device is gone: there is nothing to wait for
    }
  }
  // Of the sequence.
  void keep(int tokens) { kept_ = tokens; }
  StepsInFlight(const StepsInFlight&) = delete;
  StepsInFlight& operator=(const StepsInFlight&) = delete;

 private:
  Runner& runner_;
  KvSequence& sequence_;
  const TokenSource& source_;
  int kept_;
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
  const auto accept = [&](const Sampled& sampled) {
    made.sampled.push_back(sampled);
    emit(generation.push(sampled.token));
  };

  runner.set_profile(options.profile ? &made.prompt_profile : nullptr);
  if (prefill(runner, sequence, prompt, 1, made.prompt, options.cancelled)) {
    TokenSource first(runner, generation, made.prompt);
    const Sampled& sampled = first.next();
    made.first_token_s = seconds_since(begin);
    accept(sampled);
  } else {
    generation.end(EndReason::cancelled);
  }
  runner.set_profile(options.profile ? &made.generation_profile : nullptr);
  TokenSource source(runner, generation, made.generation);
  StepsInFlight in_flight(runner, sequence, source);
  // Where the device draws, a step is queued ahead, with a token that only the device knows yet.
  const bool runs_ahead = runner.queues_steps() && !options.profile &&
                          generation.sampler().device_draws() && !generation.has_mask();
  Ledger queued;                  // of steps that may be dropped: recorded when they are taken
  std::optional<EndReason> stop;  // why no further step runs
  const auto run = [&](Token token) {
    if (sequence.length() >= room) {
      stop = EndReason::context;
    } else if (!prefill(runner, sequence, {&token, 1}, 1, runs_ahead ? queued : made.generation,
                        options.cancelled)) {
      stop = EndReason::cancelled;
    }
    return !stop;
  };
  if (runs_ahead) {
    if (!generation.ended() && run(generation.generated().back())) source.queue();
    while (source.in_flight() > 0 && !generation.ended()) {
      const size_t known = generation.generated().size() + source.in_flight();
      if (!stop && known < size_t(options.max_tokens) && run(sampled_row(0))) source.queue();
      const int past = sequence.length() - int(source.in_flight());  // of the step to be taken
      const Sequences work{1, 1, double(past), 1};
      made.generation.record({&work, 1}, 0);
      in_flight.keep(past + 1);
      accept(source.take());
    }
  } else {
    while (!generation.ended() && !stop) {
      if (!run(generation.generated().back())) break;
      in_flight.keep(sequence.length());
      accept(source.next());
    }
  }
  if (!generation.ended()) generation.end(*stop);
  if (made.first_token_s > 0) made.generation_s = seconds_since(begin) - made.first_token_s;
  emit(generation.finish());
  made.tokens.assign(generation.generated().begin(), generation.generated().end());
  made.end = *generation.ended();
  return made;
}

}  // namespace ridge
