// Equalities of the serving engine with real models on the CPU: whatever else runs, and however a
// request is chunked, preempted, drafted for or found cached, it gets the tokens it gets alone.
#include "serving/serving_engine.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "serving/engine_support.h"

namespace ridge {
namespace {

ServingRequest random_request(std::mt19937& random, const Weights& weights, int prompt_tokens,
                              int max_tokens) {
  ServingRequest request;
  const auto vocab = static_cast<unsigned>(weights.architecture.vocab);
  // A word repeated now and then, so that n-grams are found.
  for (int i = 0; i < prompt_tokens; ++i) {
    const bool repeats = i > 4 && random() % 3 == 0;
    request.prompt.push_back(repeats ? request.prompt[size_t(i) - 4] : Token(random() % vocab));
  }
  request.generate.max_tokens = max_tokens;
  request.generate.ignore_end = random() % 2 == 0;
  SamplerOptions& sampler = request.generate.sampler;
  sampler.temperature = random() % 3 == 0 ? 0 : 0.8;
  sampler.seed = random();
  if (random() % 3 == 0) sampler.top_p = 0.9;
  if (random() % 3 == 0) sampler.presence_penalty = 0.5, sampler.frequency_penalty = 0.3;
  if (random() % 4 == 0) sampler.repetition_penalty = 1.2;
  if (random() % 4 == 0) sampler.logprobs = 3;
  if (random() % 4 == 0) request.generate.stops = {"the", "e a"};
  return request;
}

struct EngineCase {
  const char* name;
  int cache_tokens, max_tokens, max_sequences, preempt_every, drafts;
  bool draft_model, prefix_cache;
};
std::ostream& operator<<(std::ostream& out, const EngineCase& c) { return out << c.name; }

class AnyServing : public testing::TestWithParam<EngineCase> {};

TEST_P(AnyServing, GivesEachRequestTheTokensItGetsAlone) {
  const EngineCase& c = GetParam();
  const EngineBounds bounds{c.cache_tokens, c.max_tokens, c.max_sequences,
                            c.max_sequences * (1 + c.drafts)};
  ServingOptions options;
  options.preempt_every = c.preempt_every;
  options.max_drafts = c.drafts;
  options.prefix_cache = c.prefix_cache;
  // ridge-7m and ridge-1m share a vocabulary.
  if (c.draft_model) options.draft = make_test_runner(bounds);
  const char* model = c.draft_model ? "ridge-7m" : kModel;
  EngineClient client;
  ServingEngine engine(make_test_runner(bounds, model), paced(std::move(options)), client.sink());
  std::mt19937 random(42);
  std::vector<ServingRequest> requests;
  const int count = c.draft_model ? 10 : 24;
  for (int i = 0; i < count; ++i) {
    ServingRequest request = random_request(random, engine.runner().weights(),
                                            1 + int(random() % 90), 1 + int(random() % 24));
    if (i > 0 && random() % 2 == 0) {  // begins as another one does
      const std::vector<Token>& other = requests[random() % requests.size()].prompt;
      const size_t shared = std::min(other.size(), request.prompt.size());
      std::copy_n(other.begin(), shared, request.prompt.begin());
    }
    request.id = engine.new_id();
    requests.push_back(request);
    ASSERT_TRUE(engine.submit(request));
  }
  client.wait_for_ends(count);
  const std::unique_ptr<Runner> alone = make_test_runner({}, model);
  for (const ServingRequest& request : requests) {
    expect_equal(client[request.id], answer_alone(*alone, request), request.id);
  }
  EXPECT_EQ(engine.failure(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Serving, AnyServing,
                         testing::Values(EngineCase{"roomy", 8192, 256, 16, 0, 0, false, true},
                                         EngineCase{"chunked", 8192, 20, 16, 0, 0, false, true},
                                         EngineCase{"small_pool", 256, 64, 8, 0, 0, false, true},
                                         EngineCase{"preempted", 512, 64, 8, 3, 0, false, true},
                                         EngineCase{"no_cache", 512, 64, 8, 3, 0, false, false},
                                         EngineCase{"ngram_drafts", 1024, 64, 8, 0, 4, false, true},
                                         EngineCase{"preempted_drafts", 512, 64, 8, 3, 3, false,
                                                    true},
                                         EngineCase{"model_drafts", 1024, 64, 8, 0, 3, true, true}),
                         [](const auto& each) { return each.param.name; });

TEST(ServingEngine, FindsAPromptThatItHasSeenInTheCache) {
  EngineClient client;
  ServingEngine engine(make_test_runner({}), paced({}), client.sink());
  std::mt19937 random(1);
  ServingRequest request = random_request(random, engine.runner().weights(), 200, 4);
  request.generate.ignore_end = true;
  request.id = 1;
  ASSERT_TRUE(engine.submit(request));
  client.wait_for_ends(1);
  request.id = 2;
  ASSERT_TRUE(engine.submit(request));
  client.wait_for_ends(2);
  request.id = 3;
  request.cache_salt = "another tenant";
  ASSERT_TRUE(engine.submit(request));
  client.wait_for_ends(3);
  EXPECT_EQ(client[1].cached, 0);
  EXPECT_EQ(client[2].cached, 192);  // twelve pages of 16 tokens; the next is not full
  EXPECT_EQ(client[3].cached, 0);
  EXPECT_EQ(client[1].tokens, client[2].tokens);
}

TEST(ServingEngine, ReportsThePromptsLogProbabilities) {
  EngineClient client;
  ServingEngine engine(make_test_runner({.max_tokens = 16, .max_sequences = 2}), paced({}),
                       client.sink());
  std::mt19937 random(2);
  ServingRequest request = random_request(random, engine.runner().weights(), 50, 3);
  request.generate.stops.clear();
  request.prompt_logprobs = 2;
  request.id = 1;
  ASSERT_TRUE(engine.submit(request));
  client.wait_for_ends(1);
  ASSERT_EQ(client[1].prompt_sampled.size(), 49u);
  // The same from whole rows of logits.
  const std::unique_ptr<Runner> runner = make_test_runner({.max_logit_rows = 64});
  PagePool pool(runner->page_count(), runner->options().page_tokens);
  KvSequence sequence(pool);
  Ledger ledger;
  prefill(*runner, sequence, request.prompt, 50, ledger);
  const auto vocab = static_cast<size_t>(runner->weights().architecture.vocab);
  SamplerOptions report{.logprobs = 2};
  const Sampler sampler(report, int(vocab));
  SamplerWorkspace workspace;
  for (size_t i = 0; i + 1 < 50; ++i) {
    const std::span<const float> row = runner->logits().subspan(i * vocab, vocab);
    Sampled wanted;
    sampler.sample(row, {request.prompt, 50}, workspace, wanted);
    EXPECT_EQ(client[1].prompt_sampled[i].token, request.prompt[i + 1]);
    EXPECT_EQ(client[1].prompt_sampled[i].top_logprobs, wanted.top_logprobs);
  }
}

TEST(ServingEngine, EndsWhatIsCancelledWhereverItIs) {
  EngineClient client;
  ServingOptions options;
  const auto pace = options.pace = std::make_shared<StepPace>();
  ServingEngine engine(make_test_runner({.max_sequences = 2}), std::move(options), client.sink());
  pace->hold();
  std::mt19937 random(3);
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) {
    ServingRequest request = random_request(random, engine.runner().weights(), 20, 3000);
    request.generate.ignore_end = true;
    request.generate.stops.clear();
    request.id = engine.new_id();
    ids.push_back(request.id);
    ASSERT_TRUE(engine.submit(std::move(request)));
  }
  pace->allow(4);
  client.wait_for_tokens(ids[0], 3);
  engine.cancel(ids[5]);  // waits in the queue
  engine.cancel(ids[0]);  // runs
  engine.cancel(12345);   // is nobody's
  client.wait_for_ends(2);
  EXPECT_EQ(client[ids[5]].end, EndReason::cancelled);
  EXPECT_TRUE(client[ids[5]].tokens.empty());
  EXPECT_EQ(client[ids[0]].end, EndReason::cancelled);
  pace->go();
  for (int i = 1; i < 5; ++i) engine.cancel(ids[size_t(i)]);
  client.wait_for_ends(6);
  EXPECT_EQ(engine.failure(), std::nullopt);
}

TEST(ServingEngine, EndsEveryRequestWhenItEnds) {
  EngineClient client;
  {
    ServingEngine engine(make_test_runner({.max_sequences = 2}), paced({}), client.sink());
    std::mt19937 random(4);
    for (RequestId id = 1; id <= 5; ++id) {
      ServingRequest request = random_request(random, engine.runner().weights(), 20, 3000);
      request.generate.ignore_end = true;
      request.generate.stops.clear();
      request.id = id;
      ASSERT_TRUE(engine.submit(std::move(request)));
    }
    client.wait_for_tokens(1, 1);
  }
  EXPECT_EQ(client.ended(), 5);
}

TEST(ServingEngine, RefusesWhatCanNeverRun) {
  EngineClient client;
  ServingOptions options;
  options.max_waiting = 2;
  ServingEngine engine(make_test_runner({.cache_tokens = 64, .max_sequences = 1}),
                       paced(std::move(options)), client.sink());
  EXPECT_EQ(engine.max_context(), 64);
  ServingRequest request;
  EXPECT_THROW(engine.submit(request), OptionError);  // empty
  request.prompt.assign(64, 5);
  EXPECT_THROW(engine.submit(request), OptionError);  // no room for an answer
  request.prompt = {1 << 20};
  EXPECT_THROW(engine.submit(request), OptionError);  // outside the vocabulary
  request.prompt.assign(10, 5);
  request.generate.max_tokens = 0;
  EXPECT_THROW(engine.submit(request), OptionError);
  // More than the context holds: the answer ends there.
  request.generate.max_tokens = 1000;
  request.generate.ignore_end = true;
  request.id = engine.new_id();
  ASSERT_TRUE(engine.submit(request));
  client.wait_for_ends(1);
  EXPECT_EQ(client[request.id].tokens.size(), 54u);
  EXPECT_EQ(client[request.id].end, EndReason::length);
}

TEST(ServingEngine, RefusesMoreThanItsQueueHolds) {
  EngineClient client;
  ServingOptions options;
  options.max_waiting = 2;
  const auto pace = options.pace = std::make_shared<StepPace>();
  ServingEngine engine(make_test_runner({.max_sequences = 1}), std::move(options), client.sink());
  pace->hold();
  ServingRequest request;
  request.prompt.assign(10, 5);
  request.generate.max_tokens = 3000;
  request.generate.ignore_end = true;
  request.id = engine.new_id();
  ASSERT_TRUE(engine.submit(request));
  pace->allow(1);
  client.wait_for_tokens(request.id, 1);
  int accepted = 0;
  while (accepted < 10 && (request.id = engine.new_id(), engine.submit(request))) ++accepted;
  EXPECT_EQ(accepted, 2);
}

}  // namespace
}  // namespace ridge
