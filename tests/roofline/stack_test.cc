// Stacks: small steps have efficiencies of their own; what Ridge's CUDA engine was measured to do.
#include "roofline/stack.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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

// A step on an H200 in seconds, as ridge bench sees it.
double predicted(const char* model, const Sequences& step) {
  Plan plan;
  plan.weights = format_from_name("bf16");
  const Rank rank = make_rank(find_model(model), plan);
  const Ceilings c = make_ceilings(find_system("h200"), plan, find_stack("ridge-cuda"));
  std::vector<Op> ops;
  lower(rank, {&step, 1}, ops);
  return estimate_step(ops, c, rank.math).expected_s;
}

// H200, 2026-11-15: tools/gpu_check calibrate (ridge bench --device cuda, bf16, the host's clock),
// the steps the stack was fitted to. Two of the 40 generating ones are off by more than the aim of
// 5 %.
TEST(RidgeCuda, IsWithinItsAims) {
  const struct {
    const char* model;
    Sequences step;
    double ms;
  } rows[] = {
      {"llama-3.2-1b", {1, 512, 0, 1}, 3.527},   {"llama-3.2-1b", {1, 2048, 0, 1}, 8.837},
      {"llama-3.2-1b", {1, 8192, 0, 1}, 42.186}, {"llama-3.2-1b", {1, 1, 128, 1}, 0.731},
      {"llama-3.2-1b", {1, 1, 1024, 1}, 0.768},  {"llama-3.2-1b", {1, 1, 8192, 1}, 0.834},
      {"llama-3.2-1b", {4, 1, 128, 1}, 0.922},   {"llama-3.2-1b", {4, 1, 1024, 1}, 1.021},
      {"llama-3.2-1b", {4, 1, 8192, 1}, 1.455},  {"llama-3.2-1b", {32, 1, 128, 1}, 1.396},
      {"llama-3.2-1b", {32, 1, 1024, 1}, 1.631}, {"llama-3.2-1b", {32, 1, 8192, 1}, 3.487},
      {"llama-3.2-1b", {64, 1, 128, 1}, 1.776},  {"llama-3.2-1b", {64, 1, 1024, 1}, 2.211},
      {"llama-3.2-1b", {64, 1, 8192, 1}, 5.967}, {"llama-2-7b", {1, 512, 0, 1}, 14.504},
      {"llama-2-7b", {1, 2048, 0, 1}, 50.734},   {"llama-2-7b", {1, 4096, 0, 1}, 104.081},
      {"llama-2-7b", {1, 1, 128, 1}, 3.226},     {"llama-2-7b", {1, 1, 1024, 1}, 3.315},
      {"llama-2-7b", {4, 1, 128, 1}, 3.417},     {"llama-2-7b", {4, 1, 1024, 1}, 4.098},
      {"llama-2-7b", {32, 1, 128, 1}, 5.268},    {"llama-2-7b", {32, 1, 1024, 1}, 8.594},
      {"llama-2-7b", {64, 1, 128, 1}, 6.848},    {"llama-2-7b", {64, 1, 1024, 1}, 13.763},
      {"llama-3-8b", {1, 512, 0, 1}, 15.009},    {"llama-3-8b", {1, 2048, 0, 1}, 52.579},
      {"llama-3-8b", {1, 8192, 0, 1}, 240.088},  {"llama-3-8b", {1, 1, 128, 1}, 3.643},
      {"llama-3-8b", {1, 1, 1024, 1}, 3.716},    {"llama-3-8b", {1, 1, 8192, 1}, 4.008},
      {"llama-3-8b", {4, 1, 128, 1}, 3.919},     {"llama-3-8b", {4, 1, 1024, 1}, 4.242},
      {"llama-3-8b", {4, 1, 8192, 1}, 5.842},    {"llama-3-8b", {32, 1, 128, 1}, 5.262},
      {"llama-3-8b", {32, 1, 1024, 1}, 6.088},   {"llama-3-8b", {32, 1, 8192, 1}, 13.286},
      {"llama-3-8b", {64, 1, 128, 1}, 6.315},    {"llama-3-8b", {64, 1, 1024, 1}, 8.016},
      {"llama-3-8b", {64, 1, 8192, 1}, 22.368},  {"llama-2-13b", {1, 512, 0, 1}, 28.138},
      {"llama-2-13b", {1, 2048, 0, 1}, 108.876}, {"llama-2-13b", {1, 4096, 0, 1}, 217.531},
      {"llama-2-13b", {1, 1, 128, 1}, 6.252},    {"llama-2-13b", {1, 1, 1024, 1}, 6.419},
      {"llama-2-13b", {4, 1, 128, 1}, 6.776},    {"llama-2-13b", {4, 1, 1024, 1}, 7.610},
      {"llama-2-13b", {32, 1, 128, 1}, 8.845},   {"llama-2-13b", {32, 1, 1024, 1}, 14.198},
      {"llama-2-13b", {64, 1, 128, 1}, 11.149},  {"llama-2-13b", {64, 1, 1024, 1}, 21.871},
  };
  int beyond = 0;
  for (const auto& row : rows) {
    const double ms = 1e3 * predicted(row.model, row.step), error = std::fabs(ms / row.ms - 1);
    const bool prompt = row.step.fresh > 1;
    beyond += !prompt && error > 0.05;
    EXPECT_LT(error, 0.10) << fmt::format("{}, {} x {} after {}: {:.3f} ms", row.model,
                                          row.step.count, row.step.fresh, row.step.past, ms);
  }
  EXPECT_LE(beyond, 2);
}

TEST(RidgeCuda, IsListed) {
  const std::vector<std::string> names = stack_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "ridge-cuda"), names.end());
  EXPECT_EQ(find_stack("ridge-cuda").steps.front().tokens, 1);
}

}  // namespace
}  // namespace ridge
