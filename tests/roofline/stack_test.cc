// Stacks: small steps have efficiencies of their own; what Ridge's CUDA engine was measured to do.
#include "roofline/stack.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "cost/matmul.h"
#include "machine/atlas.h"
#include "model/read.h"
#include "roofline/roofline.h"
#include "step/step.h"

namespace ridge {
namespace {

constexpr int kMatmul = static_cast<int>(OpKind::matmul);
constexpr int kEmbed = static_cast<int>(OpKind::embed);

TEST(Stack, SmallStepsTakeWhatTheyDoNotNameFromTheOthers) {
  const Stack stack = stack_from_text(
      R"({"kinds": {"matmul": {"memory": 0.5}, "embed": {"memory": 0.25}},
          "steps": [{"tokens": 1, "kinds": {"matmul": {"memory": 0.9, "ramp": 1e-6}}},
                    {"tokens": 16}]})",
      "here");
  ASSERT_EQ(stack.steps.size(), 2u);
  EXPECT_EQ(stack.steps[0].tokens, 1);
  EXPECT_EQ(stack.steps[0].kinds[kMatmul].memory, 0.9);
  EXPECT_EQ(stack.steps[0].kinds[kMatmul].ramp, 1e-6);
  EXPECT_EQ(stack.steps[0].kinds[kEmbed].memory, 0.25);
  EXPECT_EQ(stack.steps[1].kinds[kMatmul].memory, 0.5);
}

TEST(Stack, MalformedFilesAreRefusedWithThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"kinds": {"matmull": {}}})", "here: kinds: 'matmull' is no operator kind"},
      {R"({"kinds": []})", "here: kinds: efficiencies by operator kind are an object"},
      {R"({"kinds": {"matmul": {"memory": 1.5}}})", "here: kinds.matmul"},
      {R"({"steps": {}})", "here: steps: a list"},
      {R"({"steps": [{}]})", "here: steps[0]: tokens"},
      {R"({"steps": [{"tokens": 0}]})", "here: steps[0]"},
      {R"({"steps": [{"tokens": 16}, {"tokens": 16}]})", "here: steps[1]"},
      {R"({"steps": [{"tokens": 1, "kinds": {"embed": {"ramp": -1}}}]})",
       "here: steps[0].kinds.embed"},
      {R"({"steps": [7]})", "here: steps[0]"},
  };
  for (const auto& [text, message] : cases) {
    try {
      stack_from_text(text, "here");
      ADD_FAILURE() << text << " was read";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

TEST(Stack, AStepsTokensChooseItsEfficiencies) {
  const Stack stack = stack_from_text(R"({"kinds": {"matmul": {"memory": 0.5}},
      "steps": [{"tokens": 16, "kinds": {"matmul": {"memory": 0.8}}}]})",
                                      "here");
  const Ceilings c = make_ceilings(find_system("h200"), {}, stack);
  Op op{"product", OpKind::matmul, DType::bf16, matmul_work({.m = 1, .k = 4096, .n = 4096}), 1};
  const auto of = [&](double tokens) {
    op.tokens = tokens;
    const Estimate e = estimate(op, c);
    return e.roof_s / e.expected_s;
  };
  EXPECT_NEAR(of(1), 0.8, 1e-12);
  EXPECT_NEAR(of(16), 0.8, 1e-12);
  EXPECT_NEAR(of(17), 0.5, 1e-12);
  EXPECT_NEAR(of(0), 0.5, 1e-12);  // of no step
}

// A step on an H200 in seconds: all of it as ridge bench sees it, or what the device does.
double predicted(const char* model, const char* weights, const Sequences& step, bool device) {
  Plan plan;
  plan.weights = format_from_name(weights);
  Stack stack = find_stack("ridge-cuda");
  if (device) stack.step = 0;
  const Rank rank = make_rank(find_model(model), plan);
  const Ceilings c = make_ceilings(find_system("h200"), plan, stack);
  std::vector<Op> ops;
  lower(rank, {&step, 1}, ops);
  // Logits go to the host where they are sampled.
  if (device) std::erase_if(ops, [](const Op& op) { return op.kind == OpKind::sample; });
  return estimate_step(ops, c, rank.math).expected_s;
}

// H200, 2026-11-15: bench/cuda_decode_bench and cuda_forward_bench, the device's clock
// (decode-at-the-roof.md, many-tokens.md).
TEST(RidgeCuda, DecodeStepsAreWithin5Percent) {
  const struct {
    const char *model, *weights;
    double batch, context, ms;
  } rows[] = {
      {"llama-3.2-1b", "bf16", 1, 128, 0.677}, {"llama-2-7b", "bf16", 1, 128, 3.118},
      {"llama-3-8b", "bf16", 1, 128, 3.475},   {"llama-3-8b", "bf16", 1, 8192, 3.838},
      {"llama-3-8b", "bf16", 1, 32768, 4.569}, {"llama-3-8b", "bf16", 8, 1024, 4.298},
      {"llama-3-8b", "bf16", 16, 1024, 5.585}, {"llama-3-8b", "bf16", 17, 1024, 5.597},
      {"llama-3-8b", "bf16", 32, 128, 5.202},  {"llama-3-8b", "bf16", 32, 1024, 6.010},
      {"llama-3-8b", "bf16", 64, 1024, 7.917}, {"llama-3-8b", "bf16", 128, 1024, 12.5},
      {"llama-3-8b", "fp8", 1, 128, 2.026},    {"llama-3-8b", "int4", 1, 128, 1.356},
  };
  for (const auto& row : rows) {
    const double ms = 1e3 * predicted(row.model, row.weights, {row.batch, 1, row.context, 1}, true);
    EXPECT_NEAR(ms / row.ms, 1, 0.05)
        << fmt::format("{} {}, batch {}, context {}: {:.3f} ms", row.model, row.weights, row.batch,
                       row.context, ms);
  }
}

// H200, 2026-11-15: ridge bench llama-3-8b --device cuda --weights random:1, the host's clock; the
// prompt of 8192 by cuda_forward_bench.
TEST(RidgeCuda, BenchIsWithinItsAims) {
  const struct {
    Sequences step;
    double ms, aim;
  } rows[] = {
      {{1, 1, 128, 1}, 3.538, 0.05},  {{1, 1, 1024, 1}, 3.637, 0.05},
      {{8, 1, 128, 1}, 3.948, 0.05},  {{8, 1, 1024, 1}, 4.512, 0.05},
      {{1, 512, 0, 1}, 16.58, 0.10},  {{1, 2048, 0, 1}, 54.05, 0.10},
      {{1, 8192, 0, 1}, 237.0, 0.10},
  };
  for (const auto& row : rows) {
    const double ms = 1e3 * predicted("llama-3-8b", "bf16", row.step, false);
    EXPECT_NEAR(ms / row.ms, 1, row.aim)
        << row.step.count << " x " << row.step.fresh << " after " << row.step.past << ": " << ms;
  }
}

TEST(RidgeCuda, IsListed) {
  const std::vector<std::string> names = stack_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "ridge-cuda"), names.end());
  EXPECT_EQ(find_stack("ridge-cuda").steps.front().tokens, 1);
}

}  // namespace
}  // namespace ridge
