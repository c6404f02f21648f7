// Ten thousand requests against an engine with a pool of a few pages that preempts a sequence every
// third step, with cancels at random times: none is lost, none is wrong, and no page is.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "serving/engine_support.h"

namespace ridge {
namespace {

// Different requests, each sent many times: prompts of all lengths, emoji that are cut by tokens,
// stop strings that lie across tokens, penalties, log probabilities.
std::vector<ServingRequest> kinds_of_requests(const Weights& weights, std::mt19937& random) {
  const std::vector<std::string> texts = {
      "The memory of a computer", "Once upon a time there was a", "🙂🙃 and 🦊 met 日本語",
      "a b a b a b a b a b", "The roof of a house is the roof of a house is the roof"};
  std::vector<ServingRequest> kinds;
  for (int i = 0; i < 40; ++i) {
    ServingRequest request;
    std::string text;
    for (unsigned parts = 1 + random() % 4; parts > 0; --parts)
      text += texts[random() % texts.size()];
    request.prompt = weights.tokenizer->encode(text);
    request.prompt.resize(1 + random() % std::min<size_t>(request.prompt.size(), 60));
    request.generate.max_tokens = 1 + int(random() % 12);
    request.generate.sampler.temperature = random() % 2 == 0 ? 0 : 1;
    request.generate.sampler.seed = random() % 5;
    if (random() % 3 == 0) request.generate.sampler.top_k = 20;
    if (random() % 3 == 0) request.generate.sampler.frequency_penalty = 1;
    if (random() % 4 == 0) request.generate.sampler.logprobs = 2;
    if (random() % 3 == 0) request.generate.stops = {"e", "the m", " of a"};
    if (random() % 3 == 0) request.generate.ignore_end = true;
    if (random() % 4 == 0) request.cache_salt = "tenant";
    request.priority = int(random() % 3);
    kinds.push_back(std::move(request));
  }
  return kinds;
}

TEST(ServingFaults, LoseNoRequestAndChangeNoAnswer) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kRequests = 1500;  // minutes otherwise
#else
  constexpr int kRequests = 10000;
#endif
  constexpr int kWaiting = 64;
  EngineClient client;
  ServingOptions options;
  options.max_waiting = kWaiting;
  options.preempt_every = 3;
  options.max_drafts = 2;
  const auto pace = options.pace = std::make_shared<StepPace>();
  const EngineBounds bounds{
      .cache_tokens = 160, .max_tokens = 24, .max_sequences = 6, .max_logit_rows = 18};
  ServingEngine engine(make_test_runner(bounds), std::move(options), client.sink());
  pace->hold();  // until the queue is full: some are refused, however slow this thread is
  std::mt19937 random(99);
  const std::vector<ServingRequest> kinds = kinds_of_requests(engine.runner().weights(), random);
  std::map<RequestId, size_t> sent;
  std::vector<RequestId> cancelled;
  int refused = 0;
  for (int i = 0; i < kRequests; ++i) {
    const size_t kind = random() % kinds.size();
    ServingRequest request = kinds[kind];
    request.id = engine.new_id();
    const RequestId id = request.id;
    if (random() % 50 == 0) {  // larger than the pool: refused at once
      request.prompt.assign(200, 3);
      EXPECT_THROW(engine.submit(std::move(request)), OptionError);
      continue;
    }
    if (!engine.submit(std::move(request))) {
      ++refused;
      pace->go();
      client.wait_for_ends(int(sent.size()) - kWaiting / 2);
      continue;
    }
    sent[id] = kind;
    if (random() % 8 == 0 && !sent.empty()) {
      const RequestId gone = id - std::min<RequestId>(id - 1, random() % 20);
      engine.cancel(gone);
      cancelled.push_back(gone);
    }
  }
  client.wait_for_ends(int(sent.size()));
  EXPECT_EQ(client.ended(), int(sent.size()));
  EXPECT_EQ(engine.failure(), std::nullopt);  // the pool was whole whenever the engine was idle
  EXPECT_GT(refused, 0);

  const std::unique_ptr<Runner> alone = make_test_runner({});
  std::vector<EngineAnswer> wanted;
  for (const ServingRequest& kind : kinds) wanted.push_back(answer_alone(*alone, kind));
  int whole = 0;
  for (const auto& [id, kind] : sent) {
    const EngineAnswer& answer = client[id];
    if (answer.end == EndReason::cancelled) {
      EXPECT_TRUE(std::find(cancelled.begin(), cancelled.end(), id) != cancelled.end());
      const std::vector<Token>& tokens = wanted[kind].tokens;
      ASSERT_LE(answer.tokens.size(), tokens.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), tokens.begin()));
      continue;
    }
    expect_equal(answer, wanted[kind], id);
    ++whole;
  }
  EXPECT_GT(whole, kRequests / 2);
}

}  // namespace
}  // namespace ridge
