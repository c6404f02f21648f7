// The loop of one request, over a runner whose logits are a function of the tokens.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <deque>

#include "base/error.h"
#include "engine/generate/generate.h"
#include "engine/sampling/logits.h"

namespace ridge {
namespace {

constexpr int kSmallVocab = 50;

// After token t the largest logit is that of (3 t + position) % kSmallVocab. Remembers what was
// written to which page, and can throw at a chosen step.
class ScriptedRunner : public Runner {
 public:
  explicit ScriptedRunner(RunnerOptions options) : options_(options) {
    weights_.architecture.vocab = kSmallVocab;
  }
  static Token after(Token token, int position) { return (3 * token + position) % kSmallVocab; }

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  void run(std::span<const Slice> batch) override {
    check_step(batch, options_, kSmallVocab);
    if (steps == throws_at) throw Error("the device is gone");
    ++steps;
    if (cancel_at == steps) cancelled = true;
    const Slice& slice = batch.front();
    written += int(slice.tokens.size());
    std::vector<Token> tokens(slice.tokens.begin(), slice.tokens.end());
    for (Token& token : tokens) {
      if (token < 0) token = chosen_.at(size_t(-1 - token));
    }
    logits_.assign(size_t(slice.logits) * kSmallVocab, 0);
    for (int row = 0; row < slice.logits; ++row) {
      const int index = int(slice.tokens.size()) - slice.logits + row;
      const Token next = after(tokens[size_t(index)], slice.past + index);
      logits_[size_t(row) * kSmallVocab + size_t(next)] = 5;
    }
  }
  std::span<const float> logits() override {
    ++whole_rows;
    return logits_;
  }
  void sample(std::span<const TopLogitsRequest> requests) override {
    std::vector<TopLogits>& top = queued_.emplace_back(requests.size());
    chosen_.clear();
    for (size_t row = 0; row < requests.size(); ++row) {
      find_top_logits(std::span(logits_).subspan(row * kSmallVocab, kSmallVocab), requests[row],
                      top[row]);
      chosen_.push_back(top[row].chosen.token);
    }
    EXPECT_LE(int(queued_.size()), kMaxStepsInFlight);
    most_in_flight = std::max(most_in_flight, int(queued_.size()));
  }
  std::span<const TopLogits> fetch() override {
    fetched_ = std::move(queued_.front());
    queued_.pop_front();
    return fetched_;
  }
  bool queues_steps() const override { return queues; }
  void copy_pages(std::span<const PageCopy> copies) override { copied += int(copies.size()); }
  void set_profile(Profile* to) override { profile = to; }
  void fill_cache(uint64_t) override {}
  std::string device() const override { return "script"; }
  double repacked_bytes() const override { return 0; }
  Plan plan() const override { return {}; }

  int steps = 0, written = 0, copied = 0, whole_rows = 0;
  int throws_at = -1, cancel_at = -1;
  bool queues = false;
  int most_in_flight = 0;
  std::atomic<bool> cancelled = false;
  Profile* profile = nullptr;

 private:
  RunnerOptions options_;
  Weights weights_;
  std::vector<float> logits_;
  std::deque<std::vector<TopLogits>> queued_;
  std::vector<TopLogits> fetched_;
  std::vector<Token> chosen_;  // by the last sample()
};

std::vector<Token> expected(std::vector<Token> tokens, int count) {
  std::vector<Token> made;
  for (int i = 0; i < count; ++i) {
    made.push_back(ScriptedRunner::after(tokens.back(), int(tokens.size()) - 1));
    tokens.push_back(made.back());
  }
  return made;
}

struct Generates : testing::Test {
  ScriptedRunner runner{{.cache_tokens = 64, .max_tokens = 8}};
  PagePool pool{runner.page_count(), runner.options().page_tokens};
  KvSequence sequence{pool};
  std::vector<Token> prompt{4, 8, 15, 16, 23, 42, 4, 8, 15, 16, 23};
  GenerateOptions options;
};

TEST_F(Generates, TokensOfAChunkedPrompt) {
  options.max_tokens = 10;
  const Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.tokens, expected(prompt, 10));
  EXPECT_EQ(made.end, EndReason::length);
  EXPECT_EQ(made.prompt.steps(), 2);  // 8 + 3 tokens
  EXPECT_EQ(made.prompt.tokens(), 11);
  EXPECT_EQ(made.generation.steps(), 9);
  EXPECT_EQ(sequence.length(), 20);  // the last token was never run
  EXPECT_EQ(runner.whole_rows, 0);
}

// With and without a step queued ahead.
struct GeneratesBothWays : Generates, testing::WithParamInterface<bool> {
  GeneratesBothWays() { runner.queues = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Steps, GeneratesBothWays, testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "ahead" : "one_by_one");
});

TEST_P(GeneratesBothWays, UntilTheContextIsFull) {
  options.max_tokens = 1000;
  const Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.end, EndReason::context);
  EXPECT_EQ(sequence.length(), 64);
  EXPECT_EQ(made.tokens, expected(prompt, 64 - 11 + 1));
}

TEST_P(GeneratesBothWays, UntilItIsCancelled) {
  options.cancelled = &runner.cancelled;
  runner.cancel_at = 5;
  const Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.end, EndReason::cancelled);
  EXPECT_EQ(made.tokens, expected(prompt, 4));  // steps 2 to 5 each gave one
  EXPECT_EQ(sequence.length(), 11 + 3);
}

// A step is queued before the token of the last one is known. All else is as without.
struct GeneratesAhead : Generates {
  GeneratesAhead() { runner.queues = true; }
};

TEST_F(GeneratesAhead, TheSameTokensInTheSameSteps) {
  options.max_tokens = 10;
  const Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.tokens, expected(prompt, 10));
  EXPECT_EQ(made.end, EndReason::length);
  EXPECT_EQ(made.generation.steps(), 9);
  EXPECT_EQ(sequence.length(), 20);
  EXPECT_EQ(runner.most_in_flight, 2);
}

// The step behind the last token is dropped, and the sequence goes on as if it had not run.
TEST_F(GeneratesAhead, DropsTheStepBehindAStopToken) {
  const std::vector<Token> all = expected(prompt, 8);
  options.stop_tokens = {all[3]};
  const Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.end, EndReason::end_token);
  EXPECT_EQ(made.tokens, std::vector<Token>(all.begin(), all.begin() + 4));
  EXPECT_EQ(sequence.length(), 11 + 3);
  EXPECT_EQ(made.generation.steps(), 3);  // the dropped one is not counted
  options.stop_tokens = {};
  options.max_tokens = 3;
  const Generated more = generate(runner, sequence, {&all[3], 1}, options, {});
  EXPECT_EQ(more.tokens, std::vector<Token>(all.begin() + 4, all.begin() + 7));
}

// Penalties need the tokens on the host.
TEST_F(GeneratesAhead, NotWhereTheHostDecides) {
  options.max_tokens = 6;
  options.sampler.presence_penalty = 0.5;
  const Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.tokens.size(), 6u);
  EXPECT_EQ(runner.most_in_flight, 1);
}

TEST_F(Generates, NothingWhenCancelledInThePrompt) {
  options.cancelled = &runner.cancelled;
  runner.cancel_at = 1;
  const Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.end, EndReason::cancelled);
  EXPECT_TRUE(made.tokens.empty());
  EXPECT_EQ(sequence.length(), 8);
  EXPECT_EQ(made.first_token_s, 0);
}

// Keys that a failed step did not write are not counted, and the same sequence can go on.
TEST_F(Generates, AnExceptionCountsNoUnwrittenKeys) {
  for (const int step : {0, 1, 4}) {
    ScriptedRunner failing({.cache_tokens = 64, .max_tokens = 8});
    failing.throws_at = step;
    KvSequence own(pool);
    options.profile = true;
    options.max_tokens = 20;
    EXPECT_THROW(generate(failing, own, prompt, options, {}), Error);
    EXPECT_EQ(own.length(), failing.written);
    EXPECT_EQ(failing.profile, nullptr);  // no pointer to a profile that is gone
    if (step != 1) continue;
    failing.throws_at = -1;
    options.max_tokens = 3;
    const auto rest = std::span(prompt).subspan(size_t(own.length()));
    const Generated made = generate(failing, own, rest, options, {});
    EXPECT_EQ(made.tokens, expected(prompt, 3));
  }
}

TEST_F(Generates, SaysThatThePoolIsEmpty) {
  KvSequence other(pool);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(other.reserve(50, copies));
  other.commit(50);  // all four pages
  EXPECT_THROW(generate(runner, sequence, prompt, options, {}), Error);
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ(runner.steps, 0);
}

TEST_F(Generates, AForkCopiesItsPartialPageOnce) {
  options.max_tokens = 5;
  Ledger ledger;
  prefill(runner, sequence, std::span(prompt).first(10), 0, ledger);
  KvSequence fork = sequence.fork();
  const auto last = std::span(prompt).subspan(10);
  const auto history = std::span(prompt).first(10);
  EXPECT_EQ(generate(runner, fork, last, options, {}, history).tokens, expected(prompt, 5));
  EXPECT_EQ(runner.copied, 1);
  EXPECT_EQ(generate(runner, sequence, last, options, {}, history).tokens, expected(prompt, 5));
  EXPECT_EQ(runner.copied, 1);
}

TEST_F(Generates, LogprobsWhereRequested) {
  options.max_tokens = 2;
  Generated made = generate(runner, sequence, prompt, options, {});
  EXPECT_EQ(made.sampled[0].logprob, 0);
  options.sampler.logprobs = 2;
  KvSequence other(pool);
  made = generate(runner, other, prompt, options, {});
  // One logit of 5 and 49 of 0.
  EXPECT_NEAR(made.sampled[0].logprob, -std::log(1 + 49 * std::exp(-5.0)), 1e-5);
  EXPECT_EQ(made.sampled[0].top_logprobs.size(), 2u);
}

TEST_F(Generates, NothingFromAnEmptyOrTooLongPrompt) {
  EXPECT_THROW(generate(runner, sequence, {}, options, {}), Error);
  const std::vector<Token> longer(65, 1);
  EXPECT_THROW(generate(runner, sequence, longer, options, {}), Error);
  EXPECT_EQ(runner.steps, 0);
}

}  // namespace
}  // namespace ridge
