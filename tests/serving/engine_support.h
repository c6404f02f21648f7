// An engine on a shipped model, a client that collects its outputs, and the answer that a request
// gets alone.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/wait_until.h"
#include "engine/generate/generate.h"
#include "serving/serving_engine.h"
#include "serving/test_pace.h"

namespace ridge {

inline constexpr const char* kModel = "ridge-1m";

struct EngineBounds {
  int cache_tokens = 4096, max_tokens = 64, max_sequences = 16, max_logit_rows = 0;
};

inline std::unique_ptr<Runner> make_test_runner(const EngineBounds& bounds,
                                                const char* model = kModel) {
  RunnerOptions options;
  options.threads = 1;
  options.cache_tokens = bounds.cache_tokens;
  options.max_tokens = bounds.max_tokens;
  options.max_sequences = bounds.max_sequences;
  options.max_logit_rows = bounds.max_logit_rows;
  options.invariant = true;  // tests compare bits of different steps
  return make_cpu_runner(load_weights(model), options);
}

struct EngineAnswer {
  std::vector<Token> tokens;
  std::vector<Sampled> sampled, prompt_sampled;
  std::string text, stop, error;
  std::optional<EndReason> end;
  int cached = 0, outputs = 0;
};

// Collects what the engine gives.
class EngineClient {
 public:
  ServingEngine::Outputs sink() {
    return [this](std::vector<RequestOutput>&& outputs) {
      const std::lock_guard lock(mutex_);
      for (RequestOutput& output : outputs) {
        EngineAnswer& answer = answers_[output.id];
        EXPECT_FALSE(answer.end) << "an output after the end of " << output.id;
        for (Sampled& sampled : output.sampled) {
          answer.tokens.push_back(sampled.token);
          answer.sampled.push_back(std::move(sampled));
        }
        if (answer.outputs++ == 0) {
          answer.cached = output.cached_tokens;
          answer.prompt_sampled = std::move(output.prompt_sampled);
        }
        answer.text += output.text;
        answer.end = output.end;
        answer.stop = output.stop;
        answer.error = output.error;
        if (output.end) ++ended_;
      }
      changed_.notify_all();
    };
  }
  void wait_for_ends(int count) {
    std::unique_lock lock(mutex_);
    while (ended_ < count) {  // each end has the whole patience
      const int before = ended_;
      ASSERT_TRUE(changed_.wait_for(lock, kPatience, [&] { return ended_ != before; }))
          << before << " of " << count;
    }
  }
  void wait_for_tokens(RequestId id, size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(
        changed_.wait_for(lock, kPatience, [&] { return answers_[id].tokens.size() >= count; }));
  }
  void wait_for_all_tokens(size_t count) {  // of all requests together
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kPatience, [&] {
      size_t tokens = 0;
      for (const auto& [id, answer] : answers_) tokens += answer.tokens.size();
      return tokens >= count;
    }));
  }
  EngineAnswer& operator[](RequestId id) { return answers_[id]; }
  int ended() const { return ended_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, EngineAnswer> answers_;
  int ended_ = 0;
};

inline EngineAnswer answer_alone(Runner& runner, const ServingRequest& request) {
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  KvSequence sequence(pool);
  Generated made = generate(runner, sequence, request.prompt, request.generate, {});
  EngineAnswer answer;
  answer.tokens = made.tokens;
  answer.sampled = made.sampled;
  answer.text = made.text;
  answer.end = made.end;
  return answer;
}

inline void expect_equal(const EngineAnswer& got, const EngineAnswer& wanted, RequestId id) {
  EXPECT_EQ(got.tokens, wanted.tokens) << id;
  EXPECT_EQ(got.text, wanted.text) << id;
  EXPECT_EQ(got.end, wanted.end) << id;
  ASSERT_EQ(got.sampled.size(), wanted.sampled.size()) << id;
  for (size_t i = 0; i < got.sampled.size(); ++i) {
    EXPECT_EQ(got.sampled[i].logprob, wanted.sampled[i].logprob) << id;
    EXPECT_EQ(got.sampled[i].top_logprobs, wanted.sampled[i].top_logprobs) << id;
  }
}

}  // namespace ridge
