// The serving engine on CUDA, where steps are planned ahead of the tokens they continue. Skipped
// where no device is (ctest label gpu).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/cuda/families.h"
#include "engine/cuda/on_device.h"
#include "serving/engine_support.h"

namespace ridge {
namespace {

struct GpuCase {
  const char* name;
  int max_tokens, max_sequences, cache_tokens, preempt_every, drafts;
  bool device_draws;  // every request may run ahead
};

class GpuServing : public testing::TestWithParam<GpuCase> {};

// Where an answer leaves the one that the request gets alone, the two tokens must have been nearly
// as probable: steps of other sizes round differently.
void expect_equal_but_for_ties(const EngineAnswer& got, const EngineAnswer& alone, double penalty,
                               RequestId id) {
  ASSERT_EQ(got.tokens.size(), alone.tokens.size()) << id;
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    if (got.tokens[i] == alone.tokens[i]) continue;
    // What the draw compares: the log probability less the frequency penalty.
    const auto adjusted = [&](Token token) {
      const auto count = std::count(alone.tokens.begin(), alone.tokens.begin() + long(i), token);
      for (const auto& [each, logprob] : alone.sampled[i].top_logprobs) {
        if (each == token) return double(logprob) - penalty * double(count);
      }
      return -100.0;
    };
    EXPECT_NEAR(adjusted(got.tokens[i]), adjusted(alone.tokens[i]), 0.05) << id << " at " << i;
    return;  // from here on the two continue different texts
  }
}

TEST_P(GpuServing, GivesEachRequestTheTokensItGetsAlone) {
  const GpuCase& c = GetParam();
  const Config config(family_of("llama").config);
  std::string why;
  RunnerOptions bounds;
  bounds.max_tokens = c.max_tokens;
  bounds.max_sequences = c.max_sequences;
  bounds.max_logit_rows = c.max_sequences * (1 + c.drafts);
  bounds.cache_tokens = c.cache_tokens;
  auto runner = cuda_runner(config, why, bounds, KvStorage::bf16);
  if (!runner) GTEST_SKIP() << why;
  RunnerOptions lone;
  lone.cache_tokens = 512;
  const auto alone = cuda_runner(config, why, lone, KvStorage::bf16);
  const auto vocab = static_cast<unsigned>(alone->weights().architecture.vocab);
  EngineClient client;
  ServingOptions options;
  options.preempt_every = c.preempt_every;
  options.max_drafts = c.drafts;
  ServingEngine engine(std::move(runner), paced(std::move(options)), client.sink());
  std::mt19937 random(5);
  std::vector<ServingRequest> requests;
  constexpr int kCount = 48;
  for (int i = 0; i < kCount; ++i) {
    ServingRequest request;
    request.id = engine.new_id();
    for (unsigned tokens = 1 + random() % 60; tokens > 0; --tokens) {
      request.prompt.push_back(Token(random() % (random() % 2 == 0 ? 8 : vocab)));
    }
    request.generate.max_tokens = 1 + int(random() % 40);
    request.generate.ignore_end = true;
    request.generate.sampler.logprobs = 20;
    request.generate.sampler.seed = random();
    if (!c.device_draws && random() % 2 == 0) request.generate.sampler.frequency_penalty = 0.2;
    requests.push_back(request);
    ASSERT_TRUE(engine.submit(std::move(request)));
  }
  client.wait_for_ends(kCount);
  EXPECT_EQ(engine.failure(), std::nullopt);
  for (const ServingRequest& request : requests) {
    expect_equal_but_for_ties(client[request.id], answer_alone(*alone, request),
                              request.generate.sampler.frequency_penalty, request.id);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuServing,
                         testing::Values(GpuCase{"ahead", 64, 16, 4096, 0, 0, true},
                                         GpuCase{"ahead_preempted", 64, 8, 512, 3, 0, true},
                                         GpuCase{"waiting_for_tokens", 64, 16, 4096, 0, 0, false},
                                         GpuCase{"drafts", 64, 8, 2048, 0, 3, true},
                                         GpuCase{"large_steps", 512, 48, 8192, 0, 0, true}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace ridge
