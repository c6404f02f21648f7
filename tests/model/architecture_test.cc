#include "model/architecture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "fuzz/sample_files.h"
#include "model/gguf.h"
#include "model/support.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::with;

json executed_llama() {
  return {{"model_type", "llama"},
          {"hidden_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 96},
          {"vocab_size", 256},
          {"max_position_embeddings", 4096},
          {"rope_theta", 10000.0},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false},
          {"eos_token_id", json::array({2, 5})}};
}

Architecture view(const json& config) {
  return architecture_of(read_config(config, "config.json"));
}

Architecture view(const sample::Gguf& file) {
  return architecture_of(model_from_gguf_header(parse_gguf(file.bytes(), "f.gguf"), "f.gguf"));
}

// Why the engine does not run it; empty where it does.
std::string not_run(const json& config) {
  return test::failure([&] { view(config); });
}

TEST(Architecture, LlamaIsPlain) {
  const Architecture made = view(executed_llama());
  EXPECT_EQ(made.head_dim, 16);
  EXPECT_EQ(made.kv_columns(), 32);
  EXPECT_EQ(made.ffn, 96);
  EXPECT_FLOAT_EQ(made.query_scale, 0.25f);
  EXPECT_FLOAT_EQ(made.norm_eps, 1e-5f);
  EXPECT_EQ(made.ends, (std::vector<int>{2, 5}));
  ASSERT_EQ(made.ropes.size(), 1u);
  ASSERT_EQ(made.ropes[0].frequency.size(), 8u);
  EXPECT_FLOAT_EQ(made.ropes[0].frequency[1], float(std::pow(10000.0, -0.125)));
  for (const LayerShape& layer : made.layers) EXPECT_EQ(layer.window, 0);
  EXPECT_FALSE(made.tied || made.qk_norm || made.qkv_bias || made.post_norms);
}

TEST(Architecture, LinearRopeDividesEveryFrequency) {
  const json scaling = {{"type", "linear"}, {"factor", 4.0}};
  const auto plain = view(executed_llama()).ropes[0].frequency;
  const auto scaled = view(with(executed_llama(), {{"rope_scaling", scaling}})).ropes[0].frequency;
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(scaled[i], plain[i] / 4);
}

// Waves longer than 8192 tokens are stretched eightfold, those shorter than 2048 kept.
TEST(Architecture, Llama3RopeStretchesLongWavesOnly) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  const json base = with(executed_llama(), {{"head_dim", 128}, {"rope_theta", 500000.0}});
  const auto plain = view(base).ropes[0].frequency;
  const auto scaled = view(with(base, {{"rope_scaling", scaling}})).ropes[0].frequency;
  int between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wave = 2 * std::numbers::pi / double(plain[i]);
    if (wave < 2048) {
      EXPECT_EQ(scaled[i], plain[i]);
    } else if (wave > 8192) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8);
    } else {
      ++between;
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8);
    }
  }
  EXPECT_GT(between, 3);
  // transformers 5 writes the same in rope_parameters, theta inside.
  json newer = base;
  newer.erase("rope_theta");
  json inside = scaling;
  inside["rope_theta"] = 500000.0;
  newer["rope_parameters"] = inside;
  EXPECT_EQ(view(newer).ropes[0].frequency, scaled);
}

// Turns within the original 2048 tokens: dimension i turns 2048 f_i / 2 pi times. More than 32:
// kept; fewer than 1: stretched.
TEST(Architecture, YarnRopeKeepsWhatTurnsOften) {
  json scaling = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  const json base = with(executed_llama(), {{"head_dim", 64}});
  const auto plain = view(base).ropes[0].frequency;
  const Rope rope = view(with(base, {{"rope_scaling", scaling}})).ropes[0];
  EXPECT_FLOAT_EQ(rope.magnitude, float(0.1 * std::log(4.0) + 1));
  EXPECT_EQ(rope.frequency[0], plain[0]);
  EXPECT_FLOAT_EQ(rope.frequency[31], plain[31] / 4);
  // low = floor(32 log(2048 / 64 pi) / log 10000) = 8, high = ceil(... 2 pi ...) = 21
  EXPECT_EQ(rope.frequency[8], plain[8]);
  EXPECT_LT(rope.frequency[9], plain[9]);
  EXPECT_FLOAT_EQ(rope.frequency[9], plain[9] * float(12.0 / 13 + 1.0 / 13 / 4));
  EXPECT_FLOAT_EQ(rope.frequency[21], plain[21] / 4);
  scaling["attention_factor"] = 1.5;
  EXPECT_FLOAT_EQ(view(with(base, {{"rope_scaling", scaling}})).ropes[0].magnitude, 1.5f);
  scaling.erase("attention_factor");
  scaling["mscale"] = 1.0;
  scaling["mscale_all_dim"] = 0.5;
  EXPECT_FLOAT_EQ(view(with(base, {{"rope_scaling", scaling}})).ropes[0].magnitude,
                  float((0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)));
}

json phi3() {
  return with(executed_llama(), {{"model_type", "phi3"},
                                 {"partial_rotary_factor", 0.5},
                                 {"original_max_position_embeddings", 64},
                                 {"rope_scaling",
                                  {{"type", "longrope"},
                                   {"short_factor", {1.0, 1.5, 2.0, 2.5}},
                                   {"long_factor", {1.0, 4.0, 8.0, 16.0}}}}});
}

TEST(Architecture, Phi3RotatesAPartOfAHeadByTwoListsOfFactors) {
  Architecture made = view(phi3());
  ASSERT_EQ(made.head_dim, 16);
  const Rope& rope = made.ropes[0];
  EXPECT_EQ(rope.dims(), 8);
  EXPECT_EQ(rope.original_context, 64);
  const double stretch = double(made.max_context) / 64;
  EXPECT_FLOAT_EQ(rope.magnitude, float(std::sqrt(1 + std::log(stretch) / std::log(64.0))));
  for (size_t i = 0; i < 4; ++i) {
    const double plain = std::pow(10000.0, -double(i) / 4);
    EXPECT_FLOAT_EQ(rope.frequency[i], float(plain / (1 + 0.5 * double(i))));
    EXPECT_FLOAT_EQ(rope.long_frequency[i], float(plain / (i == 0 ? 1 : std::pow(2.0, i + 1))));
  }
  Architecture shorter = made;
  choose_long_ropes(shorter, 64);
  EXPECT_EQ(shorter.ropes[0].frequency, rope.frequency);
  EXPECT_TRUE(shorter.ropes[0].long_frequency.empty());
  choose_long_ropes(made, 65);
  EXPECT_FLOAT_EQ(made.ropes[0].frequency[3], float(std::pow(10000.0, -0.75) / 16));

  EXPECT_NE(not_run(with(phi3(), {{"partial_rotary_factor", 0.4}})), "");  // six elements
  EXPECT_NE(not_run(with(phi3(), {{"original_max_position_embeddings", nullptr}})), "");
  json broken = phi3();
  broken["rope_scaling"]["long_factor"][2] = 0;
  EXPECT_NE(not_run(broken), "");
}

TEST(Architecture, Glm4NormsAfterItsBlocks) {
  const Architecture made =
      view(with(executed_llama(), {{"model_type", "glm4"}, {"head_dim", 16}}));
  EXPECT_TRUE(made.post_norms && made.interleaved_rope);
  EXPECT_FALSE(made.norm_plus_one || made.qkv_bias);
  EXPECT_EQ(made.ropes[0].dims(), 8);
  EXPECT_TRUE(
      view(with(executed_llama(), {{"model_type", "glm4"}, {"attention_bias", true}})).qkv_bias);
}

TEST(Architecture, GptOssHasSinksBiasesAndItsOwnGate) {
  const json config =
      with(executed_llama(), {{"model_type", "gpt_oss"},
                              {"num_local_experts", 4},
                              {"num_experts_per_tok", 2},
                              {"head_dim", 16},
                              {"quantization_config", {{"quant_method", "mxfp4"}}}});
  const Architecture made = view(config);
  EXPECT_TRUE(made.sinks && made.out_bias && made.qkv_bias && made.expert_bias);
  EXPECT_TRUE(made.normalize_top_k && made.layers[1].moe);
  EXPECT_EQ(made.activation, Activation::clamped_swiglu);
  EXPECT_EQ(made.layers[0].window, 128);
  EXPECT_EQ(made.layers[1].window, 0);
  EXPECT_NE(not_run(with(config, {{"swiglu_limit", 5.0}})), "");
  EXPECT_NE(not_run(with(config, {{"attention_bias", false}})), "");
  EXPECT_NE(not_run(with(config, {{"quantization_config", {{"quant_method", "fp8"}}}})), "");
}

TEST(Architecture, Gemma2CapsAndAlternates) {
  const json config =
      with(executed_llama(), {{"model_type", "gemma2"}, {"head_dim", 32}, {"sliding_window", 8}});
  const Architecture made = view(config);
  EXPECT_EQ(made.layers[0].window, 8);
  EXPECT_EQ(made.layers[1].window, 0);
  EXPECT_EQ(made.attention_softcap, 50);
  EXPECT_EQ(made.logit_softcap, 30);
  EXPECT_EQ(made.embed_scale, 8);
  EXPECT_FLOAT_EQ(made.query_scale, 1 / 16.0f);
  EXPECT_TRUE(made.norm_plus_one && made.post_norms);
  EXPECT_EQ(made.activation, Activation::gelu_tanh);
  EXPECT_EQ(view(with(config, {{"attn_logit_softcapping", nullptr}})).attention_softcap, 0);
}

TEST(Architecture, Gemma3HasTwoRopes) {
  json config =
      with(executed_llama(), {{"model_type", "gemma3_text"},
                              {"head_dim", 32},
                              {"sliding_window", 8},
                              {"sliding_window_pattern", 3},
                              {"rope_theta", 1e6},
                              {"rope_local_base_freq", 10000.0},
                              {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
  const Architecture made = view(config);
  ASSERT_EQ(made.ropes.size(), 2u);
  EXPECT_FLOAT_EQ(made.ropes[0].frequency[1], float(std::pow(1e6, -2.0 / 32) / 8));
  EXPECT_FLOAT_EQ(made.ropes[1].frequency[1], float(std::pow(1e4, -2.0 / 32)));
  EXPECT_EQ(made.layers[0].rope, 1);
  EXPECT_EQ(made.layers[2].rope, 0);
  EXPECT_EQ(made.layers[2].window, 0);
  EXPECT_TRUE(made.qk_norm);
  // A window as long as the context cuts nothing, but the layer keeps its local RoPE.
  const Architecture whole = view(with(config, {{"sliding_window", 4096}}));
  EXPECT_EQ(whole.layers[0].window, 0);
  EXPECT_EQ(whole.layers[0].rope, 1);
  json text = config;
  const json wrapped = {
      {"model_type", "gemma3"}, {"text_config", text}, {"eos_token_id", {1, 106}}};
  EXPECT_EQ(view(wrapped).layers[0].window, 8);
  EXPECT_EQ(view(wrapped).ends, (std::vector<int>{2, 5, 1, 106}));
  json newer = config;
  newer.erase("rope_scaling");
  newer["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  EXPECT_EQ(view(newer).ropes[0].frequency, made.ropes[0].frequency);
  EXPECT_EQ(view(newer).ropes[1].frequency, made.ropes[1].frequency);
}

TEST(Architecture, WindowsFollowTheFamily) {
  const json mistral = with(executed_llama(), {{"model_type", "mistral"}, {"sliding_window", 16}});
  for (const LayerShape& layer : view(mistral).layers) EXPECT_EQ(layer.window, 16);
  EXPECT_EQ(view(with(mistral, {{"sliding_window", nullptr}})).layers[0].window, 0);
  const json qwen =
      with(executed_llama(),
           {{"model_type", "qwen2"}, {"sliding_window", 16}, {"max_window_layers", 2}});
  EXPECT_EQ(view(qwen).layers[3].window, 0);
  EXPECT_TRUE(view(qwen).qkv_bias);
  const Architecture sliding = view(with(qwen, {{"use_sliding_window", true}}));
  EXPECT_EQ(sliding.layers[1].window, 0);
  EXPECT_EQ(sliding.layers[2].window, 16);
}

TEST(Architecture, ExpertsWhereTheConfigPutsThem) {
  const json mixtral =
      with(executed_llama(),
           {{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  const Architecture made = view(mixtral);
  EXPECT_EQ(made.expert_ffn, 96);
  EXPECT_TRUE(made.normalize_top_k && made.layers[0].moe);
  EXPECT_EQ(made.ffn, 0);
  const json qwen = with(executed_llama(), {{"model_type", "qwen3_moe"},
                                            {"num_experts", 8},
                                            {"num_experts_per_tok", 3},
                                            {"moe_intermediate_size", 32},
                                            {"mlp_only_layers", {1}},
                                            {"decoder_sparse_step", 2}});
  const Architecture mixed = view(qwen);
  EXPECT_FALSE(mixed.layers[0].moe || mixed.layers[1].moe || mixed.layers[2].moe);
  EXPECT_TRUE(mixed.layers[3].moe && mixed.qk_norm);
  EXPECT_FALSE(mixed.normalize_top_k);
  EXPECT_EQ(mixed.ffn, 96);
}

json deepseek(const char* type) {
  return {{"model_type", type},           {"hidden_size", 64},      {"num_hidden_layers", 4},
          {"num_attention_heads", 4},     {"vocab_size", 256},      {"intermediate_size", 96},
          {"q_lora_rank", nullptr},       {"kv_lora_rank", 32},     {"qk_nope_head_dim", 16},
          {"qk_rope_head_dim", 8},        {"v_head_dim", 24},       {"n_routed_experts", 8},
          {"num_experts_per_tok", 2},     {"n_shared_experts", 2},  {"moe_intermediate_size", 32},
          {"first_k_dense_replace", 1},   {"n_group", 4},           {"topk_group", 2},
          {"routed_scaling_factor", 2.5}, {"norm_topk_prob", false}};
}

TEST(Architecture, LatentAttentionHasOneRowPerToken) {
  const Architecture made = view(deepseek("deepseek_v3"));
  EXPECT_EQ(made.kv_heads, 1);
  EXPECT_EQ(made.head_dim, 40);
  EXPECT_EQ(made.cache_columns(), 40);
  EXPECT_EQ(made.q_rows(), 4 * 24);
  EXPECT_EQ(made.out_columns(), 4 * 24);
  EXPECT_EQ(made.ropes[0].dims(), 8);
  EXPECT_FLOAT_EQ(made.query_scale, float(1 / std::sqrt(24.0)));
  EXPECT_EQ(made.shared_ffn, 64);
  EXPECT_TRUE(made.routing.sigmoid && made.routing.correction && made.interleaved_rope);
  EXPECT_EQ(made.routing.top_groups, 2);
  EXPECT_FALSE(made.layers[0].moe);
  EXPECT_TRUE(made.layers[1].moe);
  // Yarn's magnitude at mscale_all_dim also scales the softmax.
  const json yarn = {{"type", "yarn"},
                     {"factor", 4.0},
                     {"mscale", 0.8},
                     {"mscale_all_dim", 0.6},
                     {"original_max_position_embeddings", 64}};
  const double all = 0.06 * std::log(4.0) + 1;
  const Architecture scaled = view(with(deepseek("deepseek_v3"), {{"rope_scaling", yarn}}));
  EXPECT_FLOAT_EQ(scaled.query_scale, float(all * all / std::sqrt(24.0)));
  EXPECT_FLOAT_EQ(scaled.ropes[0].magnitude, float((0.08 * std::log(4.0) + 1) / all));
}

TEST(Architecture, DeepseekRefusals) {
  const json v2 = deepseek("deepseek_v2"), v3 = deepseek("deepseek_v3");
  EXPECT_EQ(not_run(v2), "");
  EXPECT_EQ(view(v2).routing.groups, 1) << "greedy takes no groups";
  EXPECT_EQ(view(with(v2, {{"topk_method", "group_limited_greedy"}})).routing.groups, 4);
  json absent = v2;
  absent.erase("q_lora_rank");
  EXPECT_EQ(not_run(absent), "config.json: q_lora_rank is missing");
  EXPECT_NE(not_run(with(v2, {{"topk_method", "noaux_tc"}})), "");
  EXPECT_NE(not_run(with(v2, {{"norm_topk_prob", true}})), "");
  EXPECT_NE(not_run(with(v3, {{"scoring_func", "softmax"}})), "");
  EXPECT_NE(not_run(with(v3, {{"n_group", 3}})), "");
  EXPECT_NE(not_run(with(v3, {{"topk_group", 1}, {"num_experts_per_tok", 3}})), "");
  EXPECT_NE(not_run(with(v3, {{"kv_lora_rank", 36}})), "");
  EXPECT_NE(not_run(with(v3, {{"kv_lora_rank", 1024}})), "");
  EXPECT_NE(not_run(with(v3, {{"moe_layer_freq", 2}})), "");
  EXPECT_NE(not_run(with(v3, {{"quantization_config", {{"quant_method", "awq"}}}})), "");
}

TEST(Architecture, Llama4AlternatesRopesAndExperts) {
  const json text = with(executed_llama(), {{"model_type", "llama4_text"},
                                            {"num_local_experts", 4},
                                            {"num_experts_per_tok", 1},
                                            {"interleave_moe_layer_step", 2},
                                            {"intermediate_size_mlp", 128},
                                            {"attention_chunk_size", 32}});
  const Architecture made = view(text);
  ASSERT_EQ(made.ropes.size(), 2u);
  EXPECT_TRUE(made.ropes[1].frequency.empty());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(made.layers[i].rope, i == 3 ? 1 : 0);
    EXPECT_EQ(made.layers[i].window, i == 3 ? 0 : 32);
    EXPECT_EQ(made.layers[i].chunked, i != 3);
    EXPECT_EQ(made.layers[i].moe, i % 2 == 1);
  }
  EXPECT_EQ(made.shared_ffn, 96);
  EXPECT_EQ(made.ffn, 128);
  EXPECT_TRUE(made.unit_qk && made.routing.scales_input && made.interleaved_rope);
  EXPECT_FLOAT_EQ(made.temperature_floor, 8192);
  EXPECT_FLOAT_EQ(made.temperature_scale, 0.1f);
  EXPECT_FLOAT_EQ(view(with(text, {{"attn_temperature_tuning", 4}})).temperature_scale, 0.1f);
  EXPECT_EQ(view(with(text, {{"attn_temperature_tuning", false}})).temperature_scale, 0);
  const Architecture outer = view({{"model_type", "llama4"}, {"text_config", text}});
  EXPECT_EQ(outer.family, "llama4_text");
  EXPECT_NE(not_run(with(text, {{"no_rope_layers", {1, 0}}})), "");
  EXPECT_NE(not_run(with(text, {{"attention_chunk_size", nullptr}})), "");
}

TEST(Architecture, RefusesWhatItDoesNotExecute) {
  EXPECT_EQ(not_run(with(executed_llama(), {{"model_type", "granite"}})),
            "config.json: granite is predicted, not executed; the engine runs deepseek_v2, "
            "deepseek_v3, gemma2, gemma3, glm4, gpt_oss, llama, llama4, mistral, mixtral, phi3, "
            "qwen2, qwen3, qwen3_moe");
  EXPECT_NE(not_run(with(executed_llama(), {{"mlp_bias", true}})), "");
  json unbounded =
      with(executed_llama(),
           {{"rope_scaling", {{"rope_type", "yarn"}, {"original_max_position_embeddings", 64}}}});
  unbounded.erase("max_position_embeddings");
  EXPECT_NE(not_run(unbounded), "") << "yarn without a factor, and nothing to compute it from";
  EXPECT_NE(not_run(with(executed_llama(), {{"attention_bias", true}})), "");
  EXPECT_NE(not_run(with(executed_llama(), {{"hidden_act", "relu"}})), "");
  EXPECT_NE(not_run(with(executed_llama(), {{"partial_rotary_factor", 0.5}})), "");
  EXPECT_NE(not_run(with(executed_llama(), {{"quantization_config", {{"quant_method", "gptq"}}}})),
            "");
  EXPECT_NE(not_run(with(executed_llama(), {{"num_key_value_heads", 3}})), "");
  EXPECT_NE(
      not_run(with(executed_llama(), {{"num_attention_heads", 7}, {"num_key_value_heads", 7}})),
      "");
  EXPECT_NE(not_run(with(executed_llama(), {{"head_dim", 15}})), "");
  EXPECT_NE(not_run(with(executed_llama(), {{"hidden_size", 1 << 30}})), "");
  EXPECT_NE(not_run(with(executed_llama(), {{"num_hidden_layers", 1 << 20}})), "");
  EXPECT_NE(
      not_run(with(executed_llama(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}})),
      "");
  EXPECT_NE(not_run(with(executed_llama(), {{"rope_scaling", {{"type", "linear"}}}})), "");
  json missing = executed_llama();
  missing.erase("hidden_size");
  EXPECT_EQ(
      not_run(missing),
      "config.json: hidden_size, n_embd, d_model, hidden_dim, n_embed or model_dim is missing");
}

TEST(Architecture, GgufSaysTheSame) {
  const Architecture tiny = view(sample::tiny_llama_gguf());
  EXPECT_EQ(tiny.family, "llama");
  EXPECT_EQ(tiny.head_dim, 16);
  EXPECT_EQ(tiny.kv_heads, 2);
  EXPECT_TRUE(tiny.tied);

  sample::Gguf deepseek;
  deepseek.text("general.architecture", "deepseek2")
      .number("deepseek2.vocab_size", 256)
      .number("deepseek2.block_count", 2)
      .number("deepseek2.embedding_length", 64)
      .number("deepseek2.feed_forward_length", 96)
      .number("deepseek2.attention.head_count", 4)
      .number("deepseek2.attention.kv_lora_rank", 32)
      .number("deepseek2.attention.key_length", 24)
      .number("deepseek2.attention.value_length", 24)
      .number("deepseek2.rope.dimension_count", 8)
      .number("deepseek2.leading_dense_block_count", 1)
      .number("deepseek2.expert_count", 6)
      .number("deepseek2.expert_used_count", 2)
      .number("deepseek2.expert_shared_count", 1)
      .number("deepseek2.expert_feed_forward_length", 16)
      .tensor("token_embd.weight", {64, 256}, 1, 64 * 256 * 2);
  const Architecture second = view(deepseek);
  EXPECT_EQ(second.family, "deepseek_v2");
  EXPECT_EQ(second.latent.q_rank, 0);
  EXPECT_EQ(second.latent.nope, 16);
  EXPECT_EQ(second.shared_ffn, 16);
  EXPECT_FALSE(second.layers[0].moe);
  EXPECT_FALSE(second.normalize_top_k);
  EXPECT_EQ(second.routing.groups, 1);

  sample::Gguf gemma;
  gemma.text("general.architecture", "gemma3")
      .number("gemma3.block_count", 7)
      .number("gemma3.embedding_length", 64)
      .number("gemma3.feed_forward_length", 96)
      .number("gemma3.attention.head_count", 4)
      .number("gemma3.attention.head_count_kv", 2)
      .number("gemma3.attention.key_length", 32)
      .number("gemma3.attention.value_length", 32)
      .number("gemma3.attention.sliding_window", 8)
      .number("tokenizer.ggml.bos_token_id", 2)
      .number("tokenizer.ggml.eos_token_id", 1)
      .number("tokenizer.ggml.eot_token_id", 106);
  gemma.tensor("token_embd.weight", {64, 300}, 1, 64 * 300 * 2);
  const Architecture made = view(gemma);
  EXPECT_EQ(made.family, "gemma3_text");
  EXPECT_EQ(made.vocab, 300);
  EXPECT_EQ(made.layers[4].window, 8);
  EXPECT_EQ(made.layers[5].window, 0);
  EXPECT_EQ(made.layers[4].rope, 1);
  EXPECT_FALSE(made.norm_plus_one);
  EXPECT_FLOAT_EQ(made.query_scale, float(1 / std::sqrt(32.0)));
  EXPECT_EQ(made.ends, (std::vector<int>{1, 106}));
  EXPECT_EQ(made.bos, 2);

  // What metadata leave out is llama.cpp's, not the class's: as many KV heads as heads.
  sample::Gguf qwen3;
  qwen3.text("general.architecture", "qwen3")
      .number("qwen3.block_count", 1)
      .number("qwen3.embedding_length", 64)
      .number("qwen3.feed_forward_length", 96)
      .number("qwen3.attention.head_count", 4)
      .tensor("token_embd.weight", {64, 256}, 1, 64 * 256 * 2);
  EXPECT_EQ(view(qwen3).kv_heads, 4);
  EXPECT_EQ(view(qwen3).head_dim, 16);

  sample::Gguf other;
  other.text("general.architecture", "mamba");
  EXPECT_THROW(view(other), Error);
}

}  // namespace
}  // namespace ridge
