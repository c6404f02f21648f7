#include "predict/layout.h"

#include <gtest/gtest.h>

#include "predict/request.h"

namespace ridge {
namespace {

Request asked(const std::string& model, const std::string& machine, const std::string& batch,
              const std::string& weights = "") {
  RequestOptions options;
  options.model = model;
  options.machine = machine;
  options.batch = batch;
  options.weights = weights;
  return make_request(options);
}

TEST(Layout, TheDefaultIsTheFastestThatFits) {
  for (const char* model : {"llama-3-8b", "llama-3-70b", "deepseek-v3", "qwen2.5-7b"}) {
    for (const char* machine : {"8xh100-sxm", "4xrtx-4090", "2x8xh100-sxm"}) {
      for (const char* batch : {"1", "64", "1024"}) {
        const Request r = asked(model, machine, batch);
        SCOPED_TRACE(testing::Message() << model << " on " << machine << " at batch " << batch);
        const Prediction p = predict(r);
        EXPECT_EQ(p.memory.fits, !r.layouts.empty());
        for (const ParallelLayout& layout : r.layouts) {
          Request other = r;
          other.plan.tp = layout.tp;
          other.plan.pp = layout.pp;
          other.plan.dp = layout.dp;
          other.plan.ep = layout.ep;
          const Prediction q = predict(other);
          EXPECT_TRUE(q.memory.fits);
          EXPECT_LE(q.tokens_per_s, p.tokens_per_s * (1 + 1e-9));
          EXPECT_NEAR(q.tokens_per_s, layout.tokens_per_s, 1e-6 * q.tokens_per_s);
        }
      }
    }
  }
}

TEST(Layout, SmallModelsAreReplicatedForThroughputAndCutForLatency) {
  EXPECT_GT(asked("llama-3-8b", "8xh100-sxm", "1024").plan.dp, 1);
  EXPECT_GT(asked("llama-3-8b", "8xh100-sxm", "1").plan.tp, 1);
}

TEST(Layout, WhatFitsNoLayoutTakesTheLeastPerDevice) {
  const Request r = asked("deepseek-v3", "2xh100-sxm", "1");
  EXPECT_TRUE(r.layouts.empty());
  const double held = predict(r).memory.used();
  Request alone = r;
  alone.plan.tp = alone.plan.pp = alone.plan.ep = 1;
  alone.plan.dp = 2;
  EXPECT_LT(held, predict(alone).memory.used());
}

TEST(Layout, ExpertRanksThatWereGivenStay) {
  RequestOptions options;
  options.model = "deepseek-v3";
  options.machine = "2x8xh200";
  options.ep = "16";
  const Request r = make_request(options);
  EXPECT_EQ(r.plan.ep, 16);
  EXPECT_EQ(r.plan.tp * r.plan.dp, 16);
}

TEST(Layout, HeadsAreCutEvenly) {
  const Model model = find_model("llama-3-70b", Sources::names_only);
  EXPECT_EQ(uneven_heads(model, 8), 0);
  EXPECT_EQ(uneven_heads(model, 3), 64);
}

TEST(RequestLengths, ThePromptFollowsTheContext) {
  RequestOptions options;
  EXPECT_EQ(make_request(options).prompt, 1024);
  EXPECT_EQ(make_request(options).context, 2048);
  options.context = "8192";
  EXPECT_EQ(make_request(options).prompt, 8192);
  options.prompt = "100";
  EXPECT_EQ(make_request(options).prompt, 100);
}

TEST(RequestMemory, ScoresThatAreMaterialisedTakeMemory) {
  RequestOptions options;
  options.context = "8192";
  const Request flash = make_request(options);
  options.no_flash = true;
  const Request naive = make_request(options);
  // The prompt's and the decode step's scores and probabilities in 16 bits: 32 heads.
  const double pairs = 8192.0 * 8192 + 8192;
  EXPECT_NEAR(predict(naive).memory.activations - predict(flash).memory.activations,
              2 * 32 * pairs * 2, 1);
}

}  // namespace
}  // namespace ridge
