#include "serving/closed_loop.h"

#include <gtest/gtest.h>

#include "machine/atlas.h"
#include "model/read.h"
#include "predict/step_times.h"

namespace ridge {
namespace {

Request endpoint_request(const char* stack, double clients) {
  Request r;
  r.model = std::make_shared<const Model>(find_model("llama-3-8b"));
  r.system = find_system("h100-sxm");
  r.stack = find_stack(stack);
  r.clients = clients;
  r.prompt = 1024;
  r.output = 256;
  return r;
}

class ClosedLoop : public testing::TestWithParam<const char*> {};

TEST_P(ClosedLoop, TheSimulationEqualsTheClosedFormWhereRequestsHardlyMeet) {
  const Request r = endpoint_request(GetParam(), 1);
  const EndpointEstimate formula = estimate_endpoint(r, endpoint_load(r));
  const EndpointEstimate simulated = simulate_endpoint(r, endpoint_load(r));
  // One sequence: steps of its own context, which the table interpolates.
  EXPECT_NEAR(simulated.tpot_s / formula.tpot_s, 1, 0.03);
  // The formula adds half a step that is under way, the simulation starts at once.
  EXPECT_NEAR(simulated.ttft_s / formula.ttft_s, 1, 0.25);
}

TEST_P(ClosedLoop, TheSimulationFollowsTheClosedFormUnderLoad) {
  Request r = endpoint_request(GetParam(), 32);
  Load load = endpoint_load(r);
  load.spread = 0.2;
  const EndpointEstimate formula = estimate_endpoint(r, load);
  const EndpointEstimate simulated = simulate_endpoint(r, load);
  EXPECT_NEAR(simulated.tpot_s / formula.tpot_s, 1, 0.15);
  EXPECT_NEAR(simulated.tokens_per_s / formula.tokens_per_s, 1, 0.15);
}

TEST_P(ClosedLoop, MoreClientsWaitLonger) {
  double first = 0, token = 0;
  for (const double clients : {1, 4, 16, 64, 256}) {
    const Request r = endpoint_request(GetParam(), clients);
    const EndpointEstimate e = simulate_endpoint(r, endpoint_load(r));
    EXPECT_GE(e.ttft_s, first) << clients;
    EXPECT_GE(e.tpot_s, token) << clients;
    first = e.ttft_s;
    token = e.tpot_s;
  }
}

INSTANTIATE_TEST_SUITE_P(Serving, ClosedLoop, testing::Values("vllm", "sglang", "trtllm"),
                         [](const auto& each) { return std::string(each.param); });

TEST(StepTimes, AStepIsLinearInItsContextUpToTheKnot) {
  const Request r = endpoint_request("vllm", 1);
  const StepTimes times(r, 64, 8192, 16384);
  for (const double decodes : {1.0, 7.0, 64.0}) {
    const double low = 700 * decodes, high = std::min(times.linear_until(decodes, low), 1e7);
    const double middle = times.step(decodes, (low + high) / 2);
    EXPECT_NEAR(middle, (times.step(decodes, low) + times.step(decodes, high)) / 2, 1e-12);
    EXPECT_GT(high, low);
  }
}

TEST(StepTimes, ChunksCostTheirStepsAndNoMore) {
  const Request r = endpoint_request("vllm", 1);
  const StepTimes times(r, 64, 16384, 16384);
  const PromptChunk whole{8192, 0};
  const double at_once = times.step(0, 0, {&whole, 1});
  double chunked = 0;
  for (double past = 0; past < 8192; past += 1024) {
    const PromptChunk chunk{1024, past};
    chunked += times.step(0, 0, {&chunk, 1});
  }
  // Long GEMMs meet the power limit, chunks hardly do.
  EXPECT_GE(chunked, 0.97 * at_once);
  EXPECT_LE(chunked, 1.6 * at_once);
  // A prompt whose beginning is cached is never slower.
  const PromptChunk rest{1024, 7168};
  EXPECT_LT(times.step(0, 0, {&rest, 1}), at_once);
}

TEST(EndpointRate, LittlesLawHolds) {
  Request r = endpoint_request("vllm", 1);
  r.clients.reset();
  r.rate = 4;
  Load load = endpoint_load(r);
  const double clients = clients_at_rate(r, load, *r.rate);
  load.clients = clients;
  const EndpointEstimate e = estimate_endpoint(r, load);
  EXPECT_NEAR(clients, *r.rate * (e.ttft_s + load.output * e.tpot_s), 1.0);
}

}  // namespace
}  // namespace ridge
