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
double predicted(const char* model, const Sequences& step, const char* weights = "bf16") {
  Plan plan;
  plan.weights = format_from_name(weights);
  plan.activations = DType::bf16;
  Model whole = find_model(model);
  whole.head.format = *plan.weights;  // as the engine keeps it
  const Rank rank = make_rank(whole, plan);
  const Ceilings c = make_ceilings(find_system("h200"), plan, find_stack("ridge-cuda"), &whole);
  std::vector<Op> ops;
  lower(rank, {&step, 1}, ops);
  return estimate_step(ops, c, rank.math).expected_s;
}

// H200, 2026-11-17: tools/gpu_check calibrate (ridge bench --device cuda, bf16, steps queued
// ahead), the steps the stack was fitted to. Those of one sequence are later: by ridge bench at
// context 1024, else by cuda_decode_bench. None of the 45 generating ones is off by more than the
// aim of 5 %, two of the 12 prompts by more than 10 %.
TEST(RidgeCuda, IsWithinItsAims) {
  const struct {
    const char* model;
    Sequences step;
    double ms;
  } rows[] = {
      {"llama-3.2-1b", {1, 512, 0, 1}, 3.172},   {"llama-3.2-1b", {1, 2048, 0, 1}, 7.399},
      {"llama-3.2-1b", {1, 8192, 0, 1}, 36.650}, {"llama-3.2-1b", {1, 1, 1024, 1}, 0.660},
      {"llama-3.2-1b", {4, 1, 128, 1}, 0.704},   {"llama-3.2-1b", {4, 1, 1024, 1}, 0.779},
      {"llama-3.2-1b", {4, 1, 8192, 1}, 1.023},  {"llama-3.2-1b", {16, 1, 128, 1}, 1.062},
      {"llama-3.2-1b", {16, 1, 1024, 1}, 1.141}, {"llama-3.2-1b", {16, 1, 8192, 1}, 2.002},
      {"llama-3.2-1b", {32, 1, 128, 1}, 1.107},  {"llama-3.2-1b", {32, 1, 1024, 1}, 1.266},
      {"llama-3.2-1b", {32, 1, 8192, 1}, 3.001}, {"llama-3.2-1b", {64, 1, 128, 1}, 1.328},
      {"llama-3.2-1b", {64, 1, 1024, 1}, 1.669}, {"llama-3.2-1b", {64, 1, 8192, 1}, 5.176},
      {"llama-2-7b", {1, 512, 0, 1}, 14.161},    {"llama-2-7b", {1, 2048, 0, 1}, 45.504},
      {"llama-2-7b", {1, 4096, 0, 1}, 93.052},   {"llama-2-7b", {1, 1, 128, 1}, 3.034},
      {"llama-2-7b", {4, 1, 128, 1}, 3.260},     {"llama-2-7b", {4, 1, 1024, 1}, 3.704},
      {"llama-2-7b", {16, 1, 128, 1}, 4.294},    {"llama-2-7b", {16, 1, 1024, 1}, 5.845},
      {"llama-2-7b", {32, 1, 128, 1}, 4.663},    {"llama-2-7b", {32, 1, 1024, 1}, 7.970},
      {"llama-2-7b", {64, 1, 128, 1}, 5.676},    {"llama-2-7b", {64, 1, 1024, 1}, 12.593},
      {"llama-3-8b", {1, 512, 0, 1}, 14.578},    {"llama-3-8b", {1, 2048, 0, 1}, 47.078},
      {"llama-3-8b", {1, 8192, 0, 1}, 207.364},  {"llama-3-8b", {1, 1, 128, 1}, 3.388},
      {"llama-3-8b", {1, 1, 1024, 1}, 3.462},    {"llama-3-8b", {1, 1, 8192, 1}, 3.699},
      {"llama-3-8b", {4, 1, 128, 1}, 3.624},     {"llama-3-8b", {4, 1, 1024, 1}, 3.818},
      {"llama-3-8b", {4, 1, 8192, 1}, 4.976},    {"llama-3-8b", {16, 1, 128, 1}, 4.407},
      {"llama-3-8b", {16, 1, 1024, 1}, 4.744},   {"llama-3-8b", {16, 1, 8192, 1}, 8.116},
      {"llama-3-8b", {32, 1, 128, 1}, 4.551},    {"llama-3-8b", {32, 1, 1024, 1}, 5.291},
      {"llama-3-8b", {32, 1, 8192, 1}, 12.053},  {"llama-3-8b", {64, 1, 128, 1}, 5.058},
      {"llama-3-8b", {64, 1, 1024, 1}, 6.631},   {"llama-3-8b", {64, 1, 8192, 1}, 20.652},
      {"llama-2-13b", {1, 512, 0, 1}, 25.736},   {"llama-2-13b", {1, 2048, 0, 1}, 106.958},
      {"llama-2-13b", {1, 4096, 0, 1}, 186.777}, {"llama-2-13b", {4, 1, 128, 1}, 6.276},
      {"llama-2-13b", {4, 1, 1024, 1}, 7.216},   {"llama-2-13b", {16, 1, 128, 1}, 7.636},
      {"llama-2-13b", {16, 1, 1024, 1}, 10.060}, {"llama-2-13b", {32, 1, 128, 1}, 8.235},
      {"llama-2-13b", {32, 1, 1024, 1}, 13.441}, {"llama-2-13b", {64, 1, 128, 1}, 9.795},
      {"llama-2-13b", {64, 1, 1024, 1}, 20.649},
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
  EXPECT_LE(beyond, 2);
}

// 2026-11-18 (bf16: the day before), ridge bench llama-3-8b --format ... -c 1024: one share per set
// was solved from these steps.
TEST(RidgeCuda, KnowsNarrowWeights) {
  const struct {
    const char* weights;
    double batch, ms;
  } rows[] = {{"fp8", 1, 1.91},   {"fp8", 8, 2.60},    {"fp8", 32, 3.73}, {"fp8", 64, 5.20},
              {"fp8", 128, 8.83}, {"int4", 1, 1.24},   {"int4", 8, 2.24}, {"int4", 32, 3.62},
              {"nf4", 1, 1.58},   {"bf16", 128, 9.745}};
  for (const auto& row : rows) {
    const double ms = 1e3 * predicted("llama-3-8b", {row.batch, 1, 1024, 1}, row.weights);
    EXPECT_NEAR(ms / row.ms, 1, 0.04) << row.weights << ", batch " << row.batch << ": " << ms;
  }
}

// A format without figures in one set would be predicted as bf16 there.
TEST(RidgeCuda, HasEveryFormatInEverySet) {
  const std::vector<StepEfficiencies> steps = find_stack("ridge-cuda").steps;
  for (const StepEfficiencies& step : steps) {
    ASSERT_EQ(step.weights.size(), steps.front().weights.size()) << step.tokens;
    for (size_t i = 0; i < step.weights.size(); ++i) {
      EXPECT_EQ(step.weights[i].first, steps.front().weights[i].first) << step.tokens;
    }
  }
}

TEST(RidgeCuda, IsListed) {
  const std::vector<std::string> names = stack_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "ridge-cuda"), names.end());
  EXPECT_EQ(find_stack("ridge-cuda").steps.front().tokens, 1);
}

}  // namespace
}  // namespace ridge
