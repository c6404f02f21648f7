// What fields and families mean, and what is refused.
#include <gtest/gtest.h>

#include "base/json.h"
#include "model/support.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::read;
using test::refusal;
using test::small_llama;
using test::with;

const Linear* find(const Layer& layer, std::string_view name) {
  for (const Linear& linear : layer.linears) {
    if (linear.name == name) return &linear;
  }
  return nullptr;
}

std::vector<int> windows(const Model& model) {
  std::vector<int> result;
  for (uint16_t group : model.order) result.push_back(model.groups[group].layer.mixer.window);
  return result;
}

TEST(Config, ReadsTheDimensions) {
  Model model = read(small_llama());
  EXPECT_EQ(model.family, "llama");
  EXPECT_EQ(model.hidden, 64);
  EXPECT_EQ(model.vocab, 1000);
  EXPECT_EQ(model.max_context, 2048);
  EXPECT_EQ(model.layers(), 4);
  ASSERT_EQ(model.groups.size(), 1u);
  EXPECT_EQ(model.groups[0].layer.mixer.head_dim, 8);
  EXPECT_EQ(find(model.groups[0].layer, "k_proj")->out, 16);
}

TEST(Config, ExplicitHeadDimWins) {
  Model model = read(with(small_llama(), {{"head_dim", 32}}));
  EXPECT_EQ(find(model.groups[0].layer, "q_proj")->out, 8 * 32);
  EXPECT_EQ(find(model.groups[0].layer, "o_proj")->in, 8 * 32);
}

TEST(Config, UnknownFieldsAreIgnored) {
  EXPECT_EQ(refusal(with(small_llama(), {{"some_new_field", {1, 2, 3}}})), "");
}

TEST(Config, BiasesFollowTheFamily) {
  auto bias = [](const json& config, const char* name) {
    return find(read(config).groups[0].layer, name)->bias;
  };
  EXPECT_FALSE(bias(small_llama(), "q_proj"));
  EXPECT_TRUE(bias(with(small_llama(), {{"attention_bias", true}}), "o_proj"));
  json qwen2 = with(small_llama(), {{"model_type", "qwen2"}});
  EXPECT_TRUE(bias(qwen2, "q_proj"));  // without any field saying so
  EXPECT_FALSE(bias(qwen2, "o_proj"));
  EXPECT_FALSE(bias(with(small_llama(), {{"model_type", "qwen3"}}), "q_proj"));
  EXPECT_TRUE(bias(with(small_llama(), {{"model_type", "starcoder2"}}), "down_proj"));
}

TEST(Config, TiedEmbeddingsFollowTheFamilyUnlessSaid) {
  auto tied = [](const json& changes) {
    return read(with(small_llama(), changes)).tied_embeddings;
  };
  EXPECT_FALSE(tied(json::object()));
  EXPECT_TRUE(tied({{"tie_word_embeddings", true}}));
  EXPECT_TRUE(tied({{"model_type", "gemma"}}));
  EXPECT_FALSE(tied({{"model_type", "gemma"}, {"tie_word_embeddings", false}}));
  EXPECT_TRUE(tied({{"model_type", "cohere"}}));
}

TEST(Config, WindowsFollowTheirPatterns) {
  auto of = [](const json& changes) { return windows(read(with(small_llama(), changes))); };
  using V = std::vector<int>;
  EXPECT_EQ(of({{"model_type", "mistral"}, {"sliding_window", 512}}), (V{512, 512, 512, 512}));
  EXPECT_EQ(of({{"model_type", "mistral"}, {"sliding_window", nullptr}}), (V{0, 0, 0, 0}));
  EXPECT_EQ(of({{"model_type", "gemma2"}, {"sliding_window", 512}}), (V{512, 0, 512, 0}));
  EXPECT_EQ(
      of({{"model_type", "gemma3_text"}, {"sliding_window", 64}, {"sliding_window_pattern", 2}}),
      (V{64, 0, 64, 0}));
  EXPECT_EQ(of({{"model_type", "cohere2"}, {"sliding_window", 64}}), (V{64, 64, 64, 0}));
  EXPECT_EQ(
      of({{"model_type", "exaone4"}, {"sliding_window", 64}, {"sliding_window_pattern", "LG"}}),
      (V{64, 0, 64, 0}));
  json qwen = {{"model_type", "qwen2"}, {"sliding_window", 64}, {"max_window_layers", 3}};
  EXPECT_EQ(of(qwen), (V{0, 0, 0, 0}));  // use_sliding_window is off
  EXPECT_EQ(of(with(qwen, {{"use_sliding_window", true}})), (V{0, 0, 0, 64}));
  // A window no shorter than the context cuts nothing.
  EXPECT_EQ(of({{"model_type", "mistral"}, {"sliding_window", 2048}}), (V{0, 0, 0, 0}));
  EXPECT_EQ(of({{"model_type", "qwen3"},
                {"sliding_window", 64},
                {"layer_types",
                 {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}}}),
            (V{0, 64, 0, 64}));
}

TEST(Config, ExpertsSitWhereTheConfigSays) {
  auto experts = [](const json& changes) {
    Model model = read(with(small_llama(), changes));
    std::vector<int> result;
    for (uint16_t group : model.order) result.push_back(model.groups[group].layer.experts);
    return result;
  };
  using V = std::vector<int>;
  json moe = {{"model_type", "qwen3_moe"},
              {"num_experts", 8},
              {"num_experts_per_tok", 2},
              {"moe_intermediate_size", 32}};
  EXPECT_EQ(experts(moe), (V{8, 8, 8, 8}));
  EXPECT_EQ(experts(with(moe, {{"decoder_sparse_step", 2}})), (V{0, 8, 0, 8}));
  EXPECT_EQ(experts(with(moe, {{"mlp_only_layers", {1}}})), (V{8, 0, 8, 8}));
  json glm = {{"model_type", "glm4_moe"},    {"n_routed_experts", 8}, {"num_experts_per_tok", 2},
              {"moe_intermediate_size", 32}, {"n_shared_experts", 2}, {"first_k_dense_replace", 2}};
  EXPECT_EQ(experts(glm), (V{0, 0, 8, 8}));
  EXPECT_EQ(experts(with(glm, {{"first_k_dense_replace", 0}, {"moe_layer_freq", {0, 1, 1, 0}}})),
            (V{0, 8, 8, 0}));
  Model shared = read(with(small_llama(), glm));
  EXPECT_EQ(find(shared.groups[1].layer, "shared.up_proj")->out, 2 * 32);
  EXPECT_EQ(find(shared.groups[1].layer, "experts.up_proj")->copies, 8);
}

TEST(Config, Llama4ChunksThreeLayersInFour) {
  Model model = find_model("llama-4-maverick");
  const Layer& first = model.groups[model.order[0]].layer;
  const Layer& second = model.groups[model.order[1]].layer;
  const Layer& fourth = model.groups[model.order[3]].layer;
  EXPECT_EQ(first.mixer.window, 8192);
  EXPECT_TRUE(first.mixer.chunked);
  EXPECT_EQ(fourth.mixer.window, 0);
  EXPECT_EQ(first.experts, 0);  // experts in every second layer
  EXPECT_EQ(find(first, "up_proj")->out, 16384);
  EXPECT_EQ(second.experts, 128);
  EXPECT_EQ(find(second, "shared.up_proj")->out, 8192);
}

TEST(Config, NemotronPatternIsOneLetterALayer) {
  Model model = find_model("nemotron-3-nano-30b-a3b");
  EXPECT_EQ(model.groups[model.order[0]].layer.mixer.kind, MixerKind::mamba2);
  EXPECT_EQ(model.groups[model.order[1]].layer.experts, 128);
  EXPECT_EQ(model.groups[model.order[1]].layer.mixer.kind, MixerKind::none);
  EXPECT_EQ(model.groups[model.order[5]].layer.mixer.kind, MixerKind::attention);
  EXPECT_EQ(kv_bytes_per_token_full(model, model.kv_format), 6 * 2 * 2 * 128 * 2);
}

TEST(Config, NestedTextConfigsTakeTheFamilysDefaults) {
  json config = {{"model_type", "llava"},
                 {"text_config", {{"model_type", "llama"}, {"vocab_size", 32064}}},
                 {"vision_config", {{"hidden_size", 1024}}}};
  Model model = read(config);
  EXPECT_EQ(model.hidden, 4096);
  EXPECT_EQ(model.layers(), 32);
  EXPECT_EQ(model.vocab, 32064);
  EXPECT_FALSE(model.notes.empty());
  // At the top level the same gap is an error.
  EXPECT_NE(refusal({{"model_type", "llama"}, {"vocab_size", 32064}}), "");
}

TEST(Config, UnknownArchitecturesAreRefusedByName) {
  std::string message = refusal(with(small_llama(), {{"model_type", "lama"}}));
  EXPECT_NE(message.find("c.json"), std::string::npos) << message;
  EXPECT_NE(message.find("model_type \"lama\""), std::string::npos) << message;
  EXPECT_NE(message.find("llama"), std::string::npos) << message;
  EXPECT_NE(refusal(with(small_llama(), {{"model_type", "rwkv"}})), "");
  EXPECT_NE(
      refusal({{"model_type", "mllama"}, {"text_config", {{"model_type", "mllama_text_model"}}}}),
      "");
}

TEST(Config, RefusalsNameTheField) {
  struct Case {
    json change;
    const char* field;
  };
  const Case kCases[] = {
      {{{"hidden_size", -1}}, "hidden_size"},
      {{{"hidden_size", 0}}, "hidden_size"},
      {{{"hidden_size", 1e18}}, "hidden_size"},
      {{{"hidden_size", "64"}}, "hidden_size"},
      {{{"hidden_size", 64.5}}, "hidden_size"},
      {{{"num_hidden_layers", 1000000}}, "num_hidden_layers"},
      {{{"num_attention_heads", 7}}, "num_attention_heads"},
      {{{"num_attention_heads", 0}}, "num_attention_heads"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {{{"num_key_value_heads", 16}}, "num_key_value_heads"},
      {{{"head_dim", 0}}, "head_dim"},
      {{{"intermediate_size", true}}, "intermediate_size"},
      {{{"vocab_size", 0}}, "vocab_size"},
      {{{"vocab_size", 1e18}}, "vocab_size"},
      {{{"max_position_embeddings", -4}}, "max_position_embeddings"},
      {{{"tie_word_embeddings", "yes"}}, "tie_word_embeddings"},
      {{{"torch_dtype", "int3"}}, "torch_dtype"},
      {{{"layer_types", {"full_attention"}}}, "layer_types"},
      {{{"layer_types", {"a", "b", "c", "d"}}}, "layer_types"},
      {{{"model_type", 7}}, "model_type"},
      {{{"model_type", "olmoe"}, {"num_experts", 8}}, "num_experts_per_tok"},
      {{{"model_type", "qwen3_moe"}, {"num_experts", 8}, {"num_experts_per_tok", 9}}, "experts"},
      {{{"model_type", "gemma2"}, {"sliding_window", 0}}, "sliding_window"},
      {{{"model_type", "deepseek_v32"}}, "kv_lora_rank"},
      {{{"model_type", "nemotron_h"}, {"hybrid_override_pattern", "MM"}},
       "hybrid_override_pattern"},
      {{{"model_type", "nemotron_h"}, {"hybrid_override_pattern", "**X*"}},
       "hybrid_override_pattern"},
      {{{"model_type", "hunyuan_v1_dense"}, {"use_cla", true}}, "use_cla"},
      {{{"quantization_config", {{"bits", 4}}}}, "quant_method"},
      {{{"quantization_config", {{"quant_method", "magic"}}}}, "magic"},
  };
  for (const Case& each : kCases) {
    std::string message = refusal(with(small_llama(), each.change));
    EXPECT_NE(message.find("c.json"), std::string::npos) << each.change << ": " << message;
    EXPECT_NE(message.find(each.field), std::string::npos) << each.change << ": " << message;
  }
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "vocab_size"}) {
    json config = small_llama();
    config.erase(field);
    std::string message = refusal(config);
    EXPECT_NE(message.find(field), std::string::npos) << message;
    EXPECT_NE(message.find("missing"), std::string::npos) << message;
  }
}

TEST(Config, NotAnObject) {
  EXPECT_NE(refusal(json::array()), "");
  EXPECT_NE(refusal(json("llama")), "");
  EXPECT_NE(refusal({{"model_type", "x"}, {"text_config", 3}}), "");
}

TEST(Config, PredictionLayersStandBesideTheModel) {
  Model model = find_model("deepseek-v3");
  ASSERT_EQ(model.extras.size(), 1u);
  EXPECT_FALSE(model.extras[0].counted);
  EXPECT_NEAR(model.extras[0].parameters, 11.5e9, 0.2e9);  // 685B in the files, 671B + 14B shared
}

// The classes' defaults, from transformers' configuration files.
TEST(Config, AbsentSizesAreThoseOfTheClassAndNoted) {
  json config = with(small_llama(), {{"model_type", "qwen3"}, {"num_attention_heads", 32}});
  config.erase("num_key_value_heads");
  const Model qwen3 = read(config);
  EXPECT_EQ(qwen3.groups[0].layer.mixer.head_dim, 128);
  EXPECT_EQ(qwen3.groups[0].layer.mixer.kv_heads, 32);
  EXPECT_EQ(qwen3.notes,
            (std::vector<std::string>{"head_dim absent: 128, the default of qwen3",
                                      "num_key_value_heads absent: 32, the default of qwen3"}));
  config["model_type"] = "mistral";
  config["max_position_embeddings"] = 8192;
  const Mixer mistral = read(config).groups[0].layer.mixer;
  EXPECT_EQ(mistral.head_dim, 2);  // 64 / 32
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.window, 4096);
  // A field under another name, or null, is not absent.
  EXPECT_EQ(read(with(config, {{"num_kv_heads", 4}})).groups[0].layer.mixer.kv_heads, 4);
  EXPECT_EQ(read(with(config, {{"num_key_value_heads", nullptr}})).groups[0].layer.mixer.kv_heads,
            32);
  EXPECT_EQ(read(with(config, {{"sliding_window", nullptr}})).groups[0].layer.mixer.window, 0);
  for (const char* size : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                           "intermediate_size", "vocab_size"}) {
    json without = config;
    without.erase(size);
    EXPECT_NE(refusal(without).find(size), std::string::npos) << size;
  }
}

TEST(Config, WhatOnlyExecutionNeedsNeverStopsAPrediction) {
  const auto reason = [](const json& changes) {
    const Model model = read(with(small_llama(), changes));
    EXPECT_EQ(model.execution == nullptr, !model.not_executed.empty());
    EXPECT_EQ(parameters(model), parameters(read(small_llama())));
    return model.not_executed;
  };
  EXPECT_EQ(reason(json::object()), "");
  EXPECT_EQ(reason({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
            "c.json: rope_scaling: rope scaling \"dynamic\" is not executed; linear, llama3, yarn "
            "and longrope are");
  EXPECT_EQ(reason({{"rms_norm_eps", "small"}}),
            "c.json: rms_norm_eps must be a number, not string");
  EXPECT_EQ(reason({{"hidden_act", "relu"}}),
            "c.json: hidden_act \"relu\" is not executed for llama");
  EXPECT_EQ(reason({{"eos_token_id", -7}}).find("c.json: eos_token_id"), 0u);
  EXPECT_EQ(reason({{"model_type", "granite"}}).find("c.json: granite is predicted, not executed"),
            0u);
}

}  // namespace
}  // namespace ridge
