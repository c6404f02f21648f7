// Stacks: small steps have efficiencies of their own; what Ridge's CUDA engine was measured to do.
#include "roofline/stack.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "cost/matmul.h"
#include "machine/atlas.h"
#include "model/read.h"
#include "roofline/roofline.h"
#include "step/lower.h"

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

TEST(Stack, SmallStepsMayDependOnTheWeightsFormat) {
  const Stack stack = stack_from_text(
      R"({"kinds": {"matmul": {"memory": 0.5}},
          "steps": [{"tokens": 8, "kinds": {"matmul": {"memory": 0.9}, "embed": {"memory": 0.25}},
                     "weights": {"int4": {"matmul": {"memory": 0.4}}}}]})",
      "here");
  const StepEfficiencies& step = stack.steps.at(0);
  EXPECT_EQ(step.of("int4-g64")[kMatmul].memory, 0.4);
  EXPECT_EQ(step.of("int4")[kEmbed].memory, 0.25);
  EXPECT_EQ(step.of("int8")[kMatmul].memory, 0.9);
  const auto small_over_large = [&](const char* weights) {
    Plan plan;
    plan.weights = format_from_name(weights);
    const Ceilings ceilings = make_ceilings(find_system("h200"), plan, stack);
    return ceilings.factors_of(8).memory[kMatmul] / ceilings.factors_of(9).memory[kMatmul];
  };
  EXPECT_NEAR(small_over_large("int4-g64"), 0.5 / 0.4, 1e-12);
  EXPECT_NEAR(small_over_large("bf16"), 0.5 / 0.9, 1e-12);
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
      {R"({"steps": [{"tokens": 1, "weights": []}]})", "here: steps[0].weights"},
      {R"({"steps": [{"tokens": 1, "weights": {"int4": {"matmul": {"memory": 2}}}}]})",
       "here: steps[0].weights.int4.matmul"},
      {R"({"steps": [{"tokens": 1, "weights": {"int5": {}}}]})", "int5"},
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
  const Model whole = find_model(model);
  const Rank rank = make_rank(whole, plan);
  const Ceilings c = make_ceilings(find_system("h200"), plan, find_stack("ridge-cuda"), &whole);
  std::vector<Op> ops;
  lower(rank, {&step, 1}, ops);
  return estimate_step(ops, c, rank.math).expected_s;
}

// H200, 2026-11-17: tools/gpu_check calibrate (ridge bench --device cuda, bf16, the host's clock),
// the steps the stack was fitted to. One of the 50 generating ones is off by more than the aim of
// 5 %, two of the 12 prompts by more than 10 %.
TEST(RidgeCuda, IsWithinItsAims) {
  const struct {
    const char* model;
    Sequences step;
    double ms;
  } rows[] = {
      {"llama-3.2-1b", {1, 512, 0, 1}, 3.190},   {"llama-3.2-1b", {1, 2048, 0, 1}, 7.338},
      {"llama-3.2-1b", {1, 8192, 0, 1}, 37.639}, {"llama-3.2-1b", {1, 1, 128, 1}, 0.672},
      {"llama-3.2-1b", {1, 1, 1024, 1}, 0.700},  {"llama-3.2-1b", {1, 1, 8192, 1}, 0.782},
      {"llama-3.2-1b", {4, 1, 128, 1}, 0.722},   {"llama-3.2-1b", {4, 1, 1024, 1}, 0.790},
      {"llama-3.2-1b", {4, 1, 8192, 1}, 1.050},  {"llama-3.2-1b", {16, 1, 128, 1}, 1.084},
      {"llama-3.2-1b", {16, 1, 1024, 1}, 1.172}, {"llama-3.2-1b", {16, 1, 8192, 1}, 2.087},
      {"llama-3.2-1b", {32, 1, 128, 1}, 1.132},  {"llama-3.2-1b", {32, 1, 1024, 1}, 1.314},
      {"llama-3.2-1b", {32, 1, 8192, 1}, 3.185}, {"llama-3.2-1b", {64, 1, 128, 1}, 1.364},
      {"llama-3.2-1b", {64, 1, 1024, 1}, 1.717}, {"llama-3.2-1b", {64, 1, 8192, 1}, 5.564},
      {"llama-2-7b", {1, 512, 0, 1}, 14.217},    {"llama-2-7b", {1, 2048, 0, 1}, 46.418},
      {"llama-2-7b", {1, 4096, 0, 1}, 94.070},   {"llama-2-7b", {1, 1, 128, 1}, 3.141},
      {"llama-2-7b", {1, 1, 1024, 1}, 3.225},    {"llama-2-7b", {4, 1, 128, 1}, 3.270},
      {"llama-2-7b", {4, 1, 1024, 1}, 3.709},    {"llama-2-7b", {16, 1, 128, 1}, 4.349},
      {"llama-2-7b", {16, 1, 1024, 1}, 5.912},   {"llama-2-7b", {32, 1, 128, 1}, 4.780},
      {"llama-2-7b", {32, 1, 1024, 1}, 8.095},   {"llama-2-7b", {64, 1, 128, 1}, 5.878},
      {"llama-2-7b", {64, 1, 1024, 1}, 12.785},  {"llama-3-8b", {1, 512, 0, 1}, 14.294},
      {"llama-3-8b", {1, 2048, 0, 1}, 47.145},   {"llama-3-8b", {1, 8192, 0, 1}, 212.481},
      {"llama-3-8b", {1, 1, 128, 1}, 3.528},     {"llama-3-8b", {1, 1, 1024, 1}, 3.617},
      {"llama-3-8b", {1, 1, 8192, 1}, 3.845},    {"llama-3-8b", {4, 1, 128, 1}, 3.656},
      {"llama-3-8b", {4, 1, 1024, 1}, 3.833},    {"llama-3-8b", {4, 1, 8192, 1}, 5.006},
      {"llama-3-8b", {16, 1, 128, 1}, 4.444},    {"llama-3-8b", {16, 1, 1024, 1}, 4.780},
      {"llama-3-8b", {16, 1, 8192, 1}, 8.236},   {"llama-3-8b", {32, 1, 128, 1}, 4.604},
      {"llama-3-8b", {32, 1, 1024, 1}, 5.349},   {"llama-3-8b", {32, 1, 8192, 1}, 12.329},
      {"llama-3-8b", {64, 1, 128, 1}, 5.128},    {"llama-3-8b", {64, 1, 1024, 1}, 6.687},
      {"llama-3-8b", {64, 1, 8192, 1}, 21.229},  {"llama-2-13b", {1, 512, 0, 1}, 27.341},
      {"llama-2-13b", {1, 2048, 0, 1}, 108.118}, {"llama-2-13b", {1, 4096, 0, 1}, 197.588},
      {"llama-2-13b", {1, 1, 128, 1}, 6.002},    {"llama-2-13b", {1, 1, 1024, 1}, 6.147},
      {"llama-2-13b", {4, 1, 128, 1}, 6.295},    {"llama-2-13b", {4, 1, 1024, 1}, 7.242},
      {"llama-2-13b", {16, 1, 128, 1}, 7.743},   {"llama-2-13b", {16, 1, 1024, 1}, 10.118},
      {"llama-2-13b", {32, 1, 128, 1}, 8.342},   {"llama-2-13b", {32, 1, 1024, 1}, 13.513},
      {"llama-2-13b", {64, 1, 128, 1}, 9.989},   {"llama-2-13b", {64, 1, 1024, 1}, 20.865},
  };
  int beyond = 0;
  for (const auto& row : rows) {
    const double ms = 1e3 * predicted(row.model, row.step), error = std::fabs(ms / row.ms - 1);
    const bool prompt = row.step.fresh > 1;
    beyond += error > (prompt ? 0.10 : 0.05);
    // Prompts of 2048 tokens in the narrowest and the widest model are known to be further off: why
    // was not looked into.
    const std::string_view model = row.model;
    const bool known =
        row.step.fresh == 2048 && (model == "llama-2-13b" || model == "llama-3.2-1b");
    EXPECT_LT(error, known ? 0.17 : 0.10)
        << fmt::format("{}, {} x {} after {}: {:.3f} ms", row.model, row.step.count, row.step.fresh,
                       row.step.past, ms);
  }
  EXPECT_LE(beyond, 3);
}

TEST(RidgeCuda, IsListed) {
  const std::vector<std::string> names = stack_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "ridge-cuda"), names.end());
  EXPECT_EQ(find_stack("ridge-cuda").steps.front().tokens, 1);
}

}  // namespace
}  // namespace ridge
