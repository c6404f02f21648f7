// One device's share of a model: what it holds, for weights and for sequences.
#include "step/rank.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/read.h"
#include "step/support.h"

namespace ridge {
namespace {

double replicated_norms(const Model& model) {
  double bytes = model.other_parameters * 2;
  for (const LayerGroup& g : model.groups) bytes += g.count * g.layer.other_parameters * 2;
  return bytes;
}

TEST(Rank, AloneItHoldsTheWholeModel) {
  for (const std::string& name : builtin_model_names()) {
    const Model model = find_model(name);
    EXPECT_NEAR(make_rank(model, {}).weight_bytes / weight_bytes(model), 1, 1e-9) << name;
  }
}

TEST(Rank, TensorParallelSharesAddUp) {
  const Model model = find_model("llama-3-70b");
  const double norms = replicated_norms(model);
  for (int tp : {2, 4, 8}) {
    const Rank rank = make_rank(model, parallel({.tp = tp}));
    EXPECT_NEAR(tp * (rank.weight_bytes - norms) + norms, weight_bytes(model), 1) << tp;
  }
  // Beyond the eight KV heads k and v are held twice: more in all, less on each.
  const Rank sixteen = make_rank(model, parallel({.tp = 16}));
  EXPECT_GT(16 * (sixteen.weight_bytes - norms) + norms, weight_bytes(model) * 1.001);
  EXPECT_LT(sixteen.weight_bytes, make_rank(model, parallel({.tp = 8})).weight_bytes);
}

TEST(Rank, NoRankHoldsLessThanItsShare) {
  for (const char* name : {"llama-3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b",
                           "nemotron-h-8b", "gpt-oss-120b", "qwen2.5-7b"}) {
    const Model model = find_model(name);
    for (const Plan& plan : {parallel({.tp = 2}), parallel({.tp = 4}), parallel({.pp = 4}),
                             parallel({.tp = 2, .pp = 2})}) {
      const double bytes = make_rank(model, plan).weight_bytes;
      EXPECT_GE(bytes * plan.tp * plan.pp, weight_bytes(model) * 0.999) << name;
      EXPECT_LT(bytes, weight_bytes(model)) << name;
    }
  }
}

TEST(Rank, ExpertsSpreadOverReplicas) {
  const Model model = find_model("deepseek-v3");
  const Rank whole = make_rank(model, parallel({.dp = 8}));
  const Rank spread = make_rank(model, parallel({.dp = 8, .ep = 8}));
  EXPECT_NEAR(whole.weight_bytes / weight_bytes(model), 1, 1e-3);
  // 256 experts are 97 % of the model: an eighth of them and everything else.
  double experts = 0;
  for (const LayerGroup& g : model.groups) {
    for (const Linear& l : g.layer.linears) {
      if (l.stage == Stage::expert_in || l.stage == Stage::expert_out) {
        experts += g.count * l.bytes();
      }
    }
  }
  EXPECT_NEAR(whole.weight_bytes - spread.weight_bytes, experts * 7 / 8, experts * 1e-6);
  // Inside one replica the bytes are the same however experts are cut.
  EXPECT_NEAR(make_rank(model, parallel({.tp = 8, .ep = 8})).weight_bytes,
              make_rank(model, parallel({.tp = 8})).weight_bytes, 1e-6 * experts);
}

TEST(Rank, PlanFormatsReplaceLayersNotHeadAndEmbedding) {
  const Model model = find_model("llama-3-8b");
  const double wide = make_rank(model, {}).weight_bytes;
  Plan fp8;
  fp8.weights = format_from_name("fp8");
  const double narrow = make_rank(model, fp8).weight_bytes;
  const double ends = 2 * model.embed_parameters() * 2;  // untied
  const double norms = replicated_norms(model);
  EXPECT_NEAR(narrow, (wide - ends - norms) / 2 + ends + norms, 1);
}

TEST(Rank, SequencesTakeWhatTheModelSays) {
  Plan plan;
  plan.page_tokens = 1;
  for (const std::string& name : builtin_model_names()) {
    const Model model = find_model(name);
    const Rank rank = make_rank(model, plan);
    for (double context : {1.0, 100.0, 5000.0, 100000.0}) {
      const double expected = sequence_bytes(model, context, model.kv_format);
      EXPECT_NEAR(sequence_bytes(rank, context), expected, 1e-9 * expected) << name << context;
    }
  }
}

TEST(Rank, PagesRoundUp) {
  const Model model = find_model("llama-3-8b");
  const Rank rank = make_rank(model, {});
  const double token = kv_bytes_per_token(model, model.kv_format);
  EXPECT_EQ(sequence_bytes(rank, 1), 16 * token);
  EXPECT_EQ(sequence_bytes(rank, 16), 16 * token);
  EXPECT_EQ(sequence_bytes(rank, 17), 32 * token);
}

TEST(Rank, WithoutPagingEverySequenceReserves) {
  const Model model = find_model("llama-3-8b");
  const double token = kv_bytes_per_token(model, model.kv_format);
  Plan plan;
  plan.paging = false;
  EXPECT_EQ(sequence_bytes(make_rank(model, plan), 100), double(model.max_context) * token);
  plan.reserve = 3000;
  EXPECT_EQ(sequence_bytes(make_rank(model, plan), 100), 3000 * token);
  EXPECT_EQ(sequence_bytes(make_rank(model, plan), 5000), 5000 * token);
}

TEST(Rank, KvHeadsAreCutAndLatentsAreNot) {
  const Model llama = find_model("llama-3-70b");
  const auto at = [](const Model& m, int tp) {
    return sequence_bytes(make_rank(m, parallel({.tp = tp})), 4096);
  };
  EXPECT_DOUBLE_EQ(at(llama, 8), at(llama, 1) / 8);
  EXPECT_DOUBLE_EQ(at(llama, 16), at(llama, 8));  // eight KV heads: replicated beyond
  const Model deepseek = find_model("deepseek-v3");
  EXPECT_DOUBLE_EQ(at(deepseek, 8), at(deepseek, 1));
  const Plan staged = parallel({.pp = 4});
  EXPECT_DOUBLE_EQ(sequence_bytes(make_rank(llama, staged), 4096), at(llama, 1) / 4);
}

TEST(Rank, NarrowMathNeedsNarrowWeightsAndActivations) {
  const Model model = find_model("llama-3-8b");
  const auto math = [&](const char* weights, std::optional<DType> activations) {
    Plan plan;
    if (weights) plan.weights = format_from_name(weights);
    plan.activations = activations;
    return make_rank(model, plan).math;
  };
  EXPECT_EQ(math(nullptr, {}), DType::bf16);
  EXPECT_EQ(math("fp8", {}), DType::fp8);
  EXPECT_EQ(math("fp8", DType::fp8), DType::fp8);
  EXPECT_EQ(math("fp8", DType::bf16), DType::bf16);
  EXPECT_EQ(math(nullptr, DType::fp8), DType::bf16);  // weights stay 16-bit
  EXPECT_EQ(math("int8", {}), DType::bf16);           // weight-only
  EXPECT_EQ(math("int8", DType::int8), DType::int8);
  EXPECT_EQ(math("int4", {}), DType::bf16);
  EXPECT_EQ(math("int4", DType::int8), DType::int8);  // widened on the way
  EXPECT_EQ(math("fp8", DType::int8), DType::bf16);   // no unit multiplies the two
  EXPECT_EQ(math("int8", DType::fp8), DType::bf16);
  EXPECT_EQ(math("nvfp4", {}), DType::fp4);
  EXPECT_EQ(math("mxfp4", {}), DType::bf16);
  EXPECT_EQ(make_rank(find_model("deepseek-v3"), {}).math, DType::fp8);
}

TEST(Rank, ImpossiblePlansAreRefused) {
  const Model dense = find_model("llama-3-8b"), moe = find_model("mixtral-8x7b");
  for (const Plan& plan : {parallel({.tp = 0}), parallel({.pp = 0}), parallel({.dp = -1}),
                           parallel({.ep = 0}), parallel({.tp = 64}), parallel({.pp = 33}),
                           parallel({.dp = 8, .ep = 8}), parallel({.tp = 1000000})}) {
    EXPECT_THROW(make_rank(dense, plan), Error);
  }
  EXPECT_THROW(make_rank(moe, parallel({.dp = 16, .ep = 16})), Error);  // eight experts
  EXPECT_THROW(make_rank(moe, parallel({.tp = 3, .ep = 2})), Error);    // does not divide
  EXPECT_THROW(make_rank(moe, parallel({.tp = 1, .ep = 2})),
               Error);  // more than the ranks there are
  EXPECT_NO_THROW(make_rank(moe, parallel({.tp = 4, .ep = 2})));
}

TEST(Rank, ActivationsGrowWithTokens) {
  const Rank rank = make_rank(find_model("llama-3-8b"), {});
  // The residual stream and its normed copy at least; the fp32 logits of each sequence.
  EXPECT_GE(activation_bytes(rank, 1000, 0), 1000.0 * 2 * 4096 * 2);
  EXPECT_EQ(activation_bytes(rank, 0, 10), 10.0 * 128256 * 4);
  EXPECT_GT(activation_bytes(rank, 2000, 1), activation_bytes(rank, 1000, 1));
}

TEST(Plan, SpeculationYieldsAGeometricSum) {
  EXPECT_EQ(tokens_per_step({}), 1);
  Plan plan;
  plan.speculate = 4;
  plan.acceptance = 0.7;
  EXPECT_DOUBLE_EQ(tokens_per_step(plan), (1 - std::pow(0.7, 5)) / (1 - 0.7));
  plan.acceptance = 1;
  EXPECT_EQ(tokens_per_step(plan), 5);
  plan.acceptance = 0;
  EXPECT_EQ(tokens_per_step(plan), 1);
}

}  // namespace
}  // namespace ridge
