// A batch becomes operators: which ones, and what they add up to.
#include "step/lower.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "model/read.h"
#include "step/support.h"

namespace ridge {
namespace {

std::vector<Op> lowered(const Model& model, const Plan& plan, std::vector<Sequences> batch) {
  std::vector<Op> ops;
  const Rank rank = make_rank(model, plan);
  lower(rank, batch, ops);
  return ops;
}

std::vector<Op> lowered(const char* model, const Plan& plan, std::vector<Sequences> batch) {
  return lowered(find_model(model), plan, std::move(batch));
}

std::set<std::string> names(const std::vector<Op>& ops) {
  std::set<std::string> set;
  for (const Op& op : ops) set.insert(op.name);
  return set;
}

struct Sum {
  double flops = 0, vector = 0, weights = 0, kv = 0, bytes = 0, host = 0, launches = 0;
};

template <typename Keep>
Sum sum_of(const std::vector<Op>& ops, Keep keep) {
  Sum s;
  for (const Op& op : ops) {
    if (!keep(op)) continue;
    s.flops += op.count * op.work.flops;
    s.vector += op.count * op.work.vector_flops;
    s.weights += op.count * op.work.weight_bytes;
    s.kv += op.count * op.work.kv_bytes;
    s.bytes += op.count * op.work.device_bytes();
    s.host += op.count * op.work.host_bytes;
    s.launches += op.count * op.work.launches;
  }
  return s;
}

Sum sum_of(const std::vector<Op>& ops) {
  return sum_of(ops, [](const Op&) { return true; });
}

Sum sum_named(const std::vector<Op>& ops, const std::string& name) {
  return sum_of(ops, [&](const Op& op) { return op.name == name; });
}

bool is_product(const Op& op) {
  return op.kind == OpKind::matmul || op.kind == OpKind::expert_matmul;
}

bool in_layers(const Op& op) {
  static const std::set<std::string> ends{"embed", "final_norm", "lm_head", "sample", "quantize"};
  return !ends.contains(op.name);
}

const Sequences kDecode{8, 1, 2047, 1};
const Sequences kPrompt{1, 1000, 0, 1};

using Names = std::set<std::string>;

TEST(Lower, DenseOperators) {
  const Names layer{"embed",    "attn_norm", "qkv",  "rope_cache", "attention", "out",
                    "mlp_norm", "gate_up",   "down", "final_norm", "lm_head",   "sample"};
  EXPECT_EQ(names(lowered("llama-3-8b", {}, {kDecode})), layer);
  Names cut = layer;
  cut.insert({"embed_all_reduce", "attn_all_reduce", "mlp_all_reduce", "logits_all_gather"});
  EXPECT_EQ(names(lowered("llama-3-8b", parallel({.tp = 8}), {kDecode})), cut);
  Names staged = layer;
  staged.insert("send");
  EXPECT_EQ(names(lowered("llama-3-8b", parallel({.pp = 4}), {kDecode})), staged);
}

TEST(Lower, UnfusedOperatorsAreTheirOwnKernels) {
  Plan plan;
  plan.fusion = false;
  const std::vector<Op> apart = lowered("llama-3-8b", plan, {kDecode});
  const std::vector<Op> fused = lowered("llama-3-8b", {}, {kDecode});
  for (const char* name : {"residual", "rope", "cache_write", "activation"}) {
    EXPECT_TRUE(names(apart).contains(name)) << name;
    EXPECT_FALSE(names(fused).contains(name)) << name;
  }
  EXPECT_GT(sum_of(apart).bytes, sum_of(fused).bytes);
  EXPECT_GT(sum_of(apart).launches, sum_of(fused).launches);
  // The products are the same.
  EXPECT_DOUBLE_EQ(sum_of(apart).flops, sum_of(fused).flops);
  EXPECT_DOUBLE_EQ(sum_of(apart).weights, sum_of(fused).weights);
}

TEST(Lower, MixtureOperators) {
  const Names set = names(lowered("mixtral-8x7b", {}, {kDecode}));
  for (const char* name : {"qkv", "router", "route", "expert_gate_up", "expert_down"}) {
    EXPECT_TRUE(set.contains(name)) << name;
  }
  EXPECT_FALSE(set.contains("gate_up"));
  const Names spread = names(lowered("mixtral-8x7b", parallel({.dp = 8, .ep = 8}), {kDecode}));
  EXPECT_TRUE(spread.contains("dispatch"));
  EXPECT_TRUE(spread.contains("combine"));
  // The ranks of one replica hold the same tokens: their sums bring the experts together, as the
  // engine has it (docs/ranks.md).
  const Names same = names(lowered("mixtral-8x7b", parallel({.tp = 2, .ep = 2}), {kDecode}));
  EXPECT_TRUE(same.contains("mlp_all_reduce"));
  EXPECT_FALSE(same.contains("dispatch"));
}

TEST(Lower, LatentAttentionOperators) {
  const Names set = names(lowered("deepseek-v3", {}, {kDecode}));
  for (const char* name : {"mla_down", "mla_up_q", "mla_up_kv", "attention", "out", "gate_up",
                           "shared_gate_up", "shared_down", "expert_gate_up"}) {
    EXPECT_TRUE(set.contains(name)) << name;
  }
  EXPECT_FALSE(set.contains("qkv"));
  EXPECT_FALSE(set.contains("indexer"));
  EXPECT_TRUE(names(lowered("deepseek-v3.2", {}, {kDecode})).contains("indexer"));
}

TEST(Lower, HybridOperators) {
  for (const char* model : {"qwen3-next-80b-a3b", "nemotron-h-8b", "jamba-v0.1"}) {
    const Names set = names(lowered(model, {}, {kDecode}));
    for (const char* name : {"in_proj", "scan", "qkv", "attention"}) {
      EXPECT_TRUE(set.contains(name)) << model << ' ' << name;
    }
  }
  const Names mamba = names(lowered("mamba-2.8b", {}, {kDecode}));
  EXPECT_TRUE(mamba.contains("scan"));
  EXPECT_FALSE(mamba.contains("attention"));
}

TEST(Lower, ProductsOfOneTokenAreTwoFlopsPerActiveParameter) {
  for (const std::string& name : builtin_model_names()) {
    const Model model = find_model(name);
    const Sum products = sum_of(lowered(model, {}, {{1, 1, 1023, 1}}), is_product);
    double active = active_parameters(model);
    // The embedding is looked up, not multiplied; a tied head is.
    if (!model.tied_embeddings && model.active_includes_embedding) {
      active -= model.embed_parameters();
    }
    // Norms, convolutions and biases are parameters without a product: below 2 % of any model but
    // Mamba-1, whose x_proj and dt_proj (4.3 %) the reader counts among them.
    const double tolerance = model.groups[0].layer.mixer.kind == MixerKind::mamba1 ? 0.05 : 0.02;
    EXPECT_NEAR(products.flops / (2 * active), 1, tolerance) << name;
  }
}

TEST(Lower, DecodeReadsTheCacheTheModelKeeps) {
  for (const char* name : {"llama-3-8b", "llama-3-70b", "deepseek-v3", "qwen2.5-7b"}) {
    const Model model = find_model(name);
    const double token = kv_bytes_per_token(model, model.kv_format);
    const Sum attention = sum_named(lowered(model, {}, {kDecode}), "attention");
    EXPECT_DOUBLE_EQ(attention.kv, 8 * 2048 * token) << name;
  }
}

TEST(Lower, WindowsBoundTheCacheThatIsRead) {
  const Model model = find_model("gemma-3-27b");  // five layers of six look back 1024 tokens
  const auto read = [&](double context) {
    return sum_named(lowered(model, {}, {{1, 1, context - 1, 1}}), "attention").kv;
  };
  EXPECT_NEAR(read(65536), sequence_bytes(model, 65536, model.kv_format), 1);
  EXPECT_LT(read(65536), 0.25 * 65536 * kv_bytes_per_token_full(model, model.kv_format));
}

TEST(Lower, TensorParallelConservesWork) {
  const std::vector<Sequences> batch{kDecode, kPrompt};
  const std::vector<Op> whole = lowered("llama-3-70b", {}, batch);
  for (int tp : {2, 4, 8}) {
    const std::vector<Op> cut = lowered("llama-3-70b", parallel({.tp = tp}), batch);
    EXPECT_DOUBLE_EQ(tp * sum_of(cut).flops, sum_of(whole).flops);
    const auto products = [](const Op& op) { return is_product(op); };
    EXPECT_DOUBLE_EQ(tp * sum_of(cut, products).weights, sum_of(whole, products).weights);
    EXPECT_DOUBLE_EQ(tp * sum_named(cut, "attention").kv, sum_named(whole, "attention").kv);
  }
}

TEST(Lower, TensorParallelConservesWorkOfWhatIsCut) {
  // Routers and MLA's down-projections are replicated; everything else divides.
  for (const char* model : {"mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"}) {
    const std::vector<Op> whole = lowered(model, {}, {kDecode});
    const std::vector<Op> cut = lowered(model, parallel({.tp = 4}), {kDecode});
    for (const char* name : {"qkv", "mla_up_q", "mla_up_kv", "attention", "out", "expert_gate_up",
                             "expert_down", "shared_gate_up", "gate_up", "down", "lm_head"}) {
      const Sum a = sum_named(whole, name), b = sum_named(cut, name);
      EXPECT_NEAR(4 * b.flops, a.flops, 1e-9 * a.flops) << model << ' ' << name;
      EXPECT_NEAR(4 * b.weights, a.weights, 1e-9 * a.weights) << model << ' ' << name;
    }
    EXPECT_DOUBLE_EQ(sum_named(cut, "router").flops, sum_named(whole, "router").flops);
  }
}

TEST(Lower, ExpertParallelismLosesOnlyBalance) {
  // Many tokens: every expert awake, load even to within sqrt(2 ln 8 / mean) (cost/moe.h).
  const Sequences many{64, 64, 0, 1};
  const Sum whole = sum_named(lowered("qwen3-30b-a3b", {}, {many}), "expert_gate_up");
  const Sum spread =
      sum_named(lowered("qwen3-30b-a3b", parallel({.tp = 8, .ep = 8}), {many}), "expert_gate_up");
  const double mean = 64 * 64 * 8 / 8.0;
  EXPECT_GE(8 * spread.flops, whole.flops);
  EXPECT_LE(8 * spread.flops, whole.flops * (1 + std::sqrt(2 * std::log(8.0) / mean)) * (1 + 1e-9));
  EXPECT_NEAR(8 * spread.weights, whole.weights, 1e-6 * whole.weights);
}

TEST(Lower, AdditiveOverLayers) {
  for (const char* name : {"llama-3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b"}) {
    const Model model = find_model(name);
    Model twice = model;
    for (LayerGroup& g : twice.groups) g.count *= 2;
    twice.order.insert(twice.order.end(), model.order.begin(), model.order.end());
    for (const Sequences& s : {kDecode, kPrompt}) {
      const Sum one = sum_of(lowered(model, {}, {s}), in_layers);
      const Sum two = sum_of(lowered(twice, {}, {s}), in_layers);
      EXPECT_DOUBLE_EQ(two.flops, 2 * one.flops) << name;
      EXPECT_DOUBLE_EQ(two.bytes, 2 * one.bytes) << name;
      EXPECT_DOUBLE_EQ(two.launches, 2 * one.launches) << name;
    }
  }
}

TEST(Lower, MixedStepsShareTheWeights) {
  const Sequences chunk{1, 512, 512, 1};
  for (const char* model : {"llama-3-8b", "mixtral-8x7b", "deepseek-v3"}) {
    const Sum decode = sum_of(lowered(model, {}, {kDecode}));
    const Sum prefill = sum_of(lowered(model, {}, {chunk}));
    const Sum mixed = sum_of(lowered(model, {}, {kDecode, chunk}));
    EXPECT_LT(mixed.bytes, decode.bytes + prefill.bytes) << model;
    EXPECT_GE(mixed.weights, prefill.weights) << model;
    EXPECT_LT(mixed.weights, decode.weights + prefill.weights) << model;
    EXPECT_LE(mixed.launches, decode.launches + prefill.launches) << model;
  }
  // Dense: the arithmetic is the sum, the matrices are read once.
  const Sum decode = sum_of(lowered("llama-3-8b", {}, {kDecode}), is_product);
  const Sum prefill = sum_of(lowered("llama-3-8b", {}, {chunk}), is_product);
  const Sum mixed = sum_of(lowered("llama-3-8b", {}, {kDecode, chunk}), is_product);
  EXPECT_DOUBLE_EQ(mixed.flops, decode.flops + prefill.flops);
  EXPECT_DOUBLE_EQ(mixed.weights, decode.weights);
}

TEST(Lower, OneGroupOfSequencesEqualsItsMembers) {
  const Sum together = sum_of(lowered("llama-3-8b", {}, {{6, 1, 999, 1}}));
  const Sum apart = sum_of(lowered("llama-3-8b", {}, {{4, 1, 999, 1}, {2, 1, 999, 1}}));
  EXPECT_DOUBLE_EQ(together.flops, apart.flops);
  EXPECT_DOUBLE_EQ(together.bytes, apart.bytes);
  EXPECT_DOUBLE_EQ(together.launches, apart.launches);
}

Sum prefill_sum(const char* model, const Plan& plan, double prompt) {
  Sum sum;
  for (const Sequences& step : prefill_steps(plan, prompt, 1)) {
    const Sum s = sum_of(lowered(model, plan, {step}));
    sum.flops += s.flops;
    sum.weights += s.weights;
    sum.bytes += s.bytes;
  }
  return sum;
}

TEST(Lower, ChunkedPrefillConservesFlopsAndReadsWeightsPerChunk) {
  Plan chunked;
  chunked.chunk = 256;
  const Sum whole = prefill_sum("llama-3-8b", {}, 1000);
  const Sum parts = prefill_sum("llama-3-8b", chunked, 1000);
  EXPECT_NEAR(parts.flops, whole.flops, 1e-9 * whole.flops);
  const Sum layers = sum_of(lowered("llama-3-8b", {}, {kPrompt}), [](const Op& op) {
    return is_product(op) && std::string(op.name) != "lm_head";
  });
  // Three more passes over the layers, none over the head: only the last chunk needs it.
  EXPECT_NEAR(parts.weights - whole.weights, 3 * layers.weights, 1e-9 * whole.weights);
}

TEST(Lower, ChunksBeforeTheLastStopBeforeTheHead) {
  const Names set = names(lowered("llama-3-8b", parallel({.tp = 2}), {{1, 256, 0, 0}}));
  for (const char* name : {"final_norm", "lm_head", "logits_all_gather", "sample"}) {
    EXPECT_FALSE(set.contains(name)) << name;
  }
}

TEST(PrefillSteps, CoverThePromptOnce) {
  for (double chunk : {0.0, 1.0, 100.0, 256.0, 5000.0}) {
    for (double hit : {0.0, 0.3, 0.5, 1.0}) {
      Plan plan;
      plan.chunk = chunk;
      plan.prefix_hit = hit;
      const std::vector<Sequences> steps = prefill_steps(plan, 1000, 2);
      ASSERT_FALSE(steps.empty());
      // At least the last token is computed, for its logits.
      EXPECT_EQ(steps.front().past, std::min(999.0, std::floor(1000 * hit)));
      double next = steps.front().past, logits = 0;
      for (const Sequences& s : steps) {
        EXPECT_EQ(s.past, next);
        EXPECT_EQ(s.count, 2);
        EXPECT_GE(s.fresh, 1);
        if (chunk > 0) {
          EXPECT_LE(s.fresh, chunk);
        }
        next += s.fresh;
        logits += s.logits;
      }
      EXPECT_EQ(next, 1000);
      EXPECT_EQ(logits, 1);
    }
  }
}

TEST(Lower, PrefixReuseSkipsWhatIsCached) {
  Plan plan;
  plan.prefix_hit = 0.5;
  const Sum whole = sum_of(lowered("llama-3-8b", {}, {kPrompt}), in_layers);
  const Sum first = sum_of(lowered("llama-3-8b", {}, {{1, 500, 0, 0}}), in_layers);
  const std::vector<Sequences> steps = prefill_steps(plan, 1000, 1);
  ASSERT_EQ(steps.size(), 1u);
  const Sum rest = sum_of(lowered("llama-3-8b", plan, {steps[0]}), in_layers);
  EXPECT_NEAR(rest.flops, whole.flops - first.flops, 1e-9 * whole.flops);
}

TEST(Lower, VerifyingDraftsReadsWeightsOnce) {
  const Sum plain = sum_of(lowered("llama-3-8b", {}, {{4, 1, 2047, 1}}), is_product);
  const std::vector<Op> ops = lowered("llama-3-8b", {}, {{4, 4, 2044, 4}});
  const Sum verify = sum_of(ops, is_product);
  EXPECT_DOUBLE_EQ(verify.weights, plain.weights);
  EXPECT_DOUBLE_EQ(verify.flops, 4 * plain.flops);
  const Sum before = sum_named(lowered("llama-3-8b", {}, {{4, 1, 2047, 1}}), "attention");
  EXPECT_DOUBLE_EQ(sum_named(ops, "attention").kv, before.kv);  // the same 2048 keys, once
  for (const Op& op : ops) EXPECT_NE(op.kind, OpKind::attention_prefill);
}

TEST(Lower, NarrowMathOnlyWhereBothSidesAreNarrow) {
  Plan plan;
  plan.weights = format_from_name("fp8");
  for (const Op& op : lowered("mixtral-8x7b", plan, {kDecode})) {
    const std::string name = op.name;
    if (!is_product(op)) {
      if (op.work.flops > 0) {
        EXPECT_EQ(op.math, DType::bf16) << name;  // attention over a bf16 cache
      }
    } else if (name == "router" || name == "lm_head") {
      EXPECT_EQ(op.math, DType::bf16) << name;
    } else {
      EXPECT_EQ(op.math, DType::fp8) << name;
    }
  }
  plan.activations = DType::bf16;
  for (const Op& op : lowered("mixtral-8x7b", plan, {kDecode})) EXPECT_EQ(op.math, DType::bf16);
  // gpt-oss: mxfp4 experts are widened to 16 bits.
  for (const Op& op : lowered("gpt-oss-20b", {}, {kDecode})) EXPECT_EQ(op.math, DType::bf16);
}

TEST(Lower, NarrowActivationsAreReadNarrow) {
  Plan wide, narrow;
  wide.weights = narrow.weights = format_from_name("fp8");
  wide.activations = DType::bf16;
  const std::vector<Op> a = lowered("llama-3-8b", wide, {kPrompt});
  const std::vector<Op> b = lowered("llama-3-8b", narrow, {kPrompt});
  // qkv reads 1000 x 4096 activations in each of 32 layers: one byte less each.
  EXPECT_DOUBLE_EQ(sum_named(a, "qkv").bytes - sum_named(b, "qkv").bytes, 32 * 1000.0 * 4096);
}

TEST(Lower, OffloadedWeightsCrossTheHostLink) {
  Plan plan;
  plan.offload = 0.25;
  const Sum s = sum_of(lowered("llama-3-8b", plan, {kDecode}), is_product);
  EXPECT_DOUBLE_EQ(s.host, 0.25 * s.weights);
  EXPECT_EQ(sum_of(lowered("llama-3-8b", {}, {kDecode})).host, 0);
}

TEST(Lower, NaiveAttentionMovesMoreAndMlaDecodesAbsorbed) {
  Plan naive;
  naive.flash = false;
  EXPECT_GT(sum_named(lowered("llama-3-8b", naive, {kPrompt}), "attention").bytes,
            5 * sum_named(lowered("llama-3-8b", {}, {kPrompt}), "attention").bytes);
  // Decode of MLA reads 576 elements a token and layer whatever the heads.
  const Sum one = sum_named(lowered("deepseek-v3", {}, {kDecode}), "attention");
  const Sum cut = sum_named(lowered("deepseek-v3", parallel({.tp = 8}), {kDecode}), "attention");
  EXPECT_DOUBLE_EQ(one.kv, 61 * 8 * 2048 * 576 * 2.0);
  EXPECT_DOUBLE_EQ(cut.kv, one.kv);
  EXPECT_DOUBLE_EQ(8 * cut.flops, one.flops);
}

TEST(Lower, EveryModelLowersToSaneOperators) {
  for (const std::string& name : builtin_model_names()) {
    const Model model = find_model(name);
    for (const Sequences& s : {kDecode, kPrompt, Sequences{1, 1, 0, 1}}) {
      for (const Op& op : lowered(model, {}, {s})) {
        SCOPED_TRACE(name + " " + op.name);
        EXPECT_TRUE(std::isfinite(op.work.flops) && op.work.flops >= 0);
        EXPECT_TRUE(std::isfinite(op.work.device_bytes()) && op.work.device_bytes() > 0);
        EXPECT_GE(op.work.padded_flops, op.work.flops);
        EXPECT_GE(op.work.launches, 1);
        EXPECT_GE(op.count, 1);
      }
    }
  }
}

}  // namespace
}  // namespace ridge
