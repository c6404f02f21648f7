// quantization_config: which matrices are stored how, and what that weighs.
#include <gtest/gtest.h>

#include "model/config_quant.h"
#include "model/support.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::read;
using test::refusal;
using test::small_llama;
using test::with;

json quantized(const json& quantization) {
  return with(small_llama(), {{"quantization_config", quantization}});
}

Format format_in(const Model& model, std::string_view name, int layer = 0) {
  for (const Linear& linear : model.groups[model.order[size_t(layer)]].layer.linears) {
    if (linear.name == name) return linear.format;
  }
  return {};
}

TEST(Quantization, MethodsGiveTheirBits) {
  struct Case {
    json config;
    const char* name;
    double bits;
  };
  const Case kCases[] = {
      {{{"quant_method", "fp8"}}, "fp8", 8},
      {{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, "fp8-block", 8 + 32.0 / 16384},
      {{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}},
       "int4-g128",
       4 + 16.0 / 128 + 4.0 / 128},
      {{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}},
       "int4-g32",
       4 + 16.0 / 32 + 4.0 / 32},
      {{{"quant_method", "gptq"}, {"bits", 8}, {"group_size", -1}}, "int8", 8},
      {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}, "nf4", 4.5},
      {{{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}, "int8", 8},
      {{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, "nvfp4", 4.5},
      {{{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}, "fp8", 8},
      {{{"quant_method", "hqq"},
        {"quant_config", {{"weight_quant_params", {{"nbits", 4}, {"group_size", 64}}}}}},
       "hqq4-g64",
       4.5},
      {{{"quant_method", "compressed-tensors"},
        {"config_groups",
         {{"group_0",
           {{"targets", {"Linear"}},
            {"weights",
             {{"num_bits", 4}, {"type", "int"}, {"group_size", 32}, {"symmetric", true}}}}}}}},
       "int4-g32",
       4.5},
      {{{"quant_method", "compressed-tensors"},
        {"config_groups",
         {{"group_0",
           {{"targets", {"Linear"}}, {"weights", {{"num_bits", 8}, {"type", "float"}}}}}}}},
       "fp8",
       8},
  };
  for (const Case& each : kCases) {
    Model model = read(quantized(each.config));
    Format format = format_in(model, "q_proj");
    EXPECT_EQ(format.name, each.name) << each.config;
    EXPECT_DOUBLE_EQ(format.bits, each.bits) << each.config;
    EXPECT_EQ(model.embed_format.name, "bf16");  // embedding and head stay as they were
    EXPECT_EQ(model.head.format.name, "bf16");
  }
}

TEST(Quantization, BytesAreTheSumOfTheFormats) {
  Model model = read(quantized({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}}));
  double matrices = 4 * (2.0 * 64 * 64 + 2.0 * 64 * 16 + 3.0 * 64 * 128);
  double rest = parameters(model) - matrices;
  EXPECT_DOUBLE_EQ(weight_bytes(model), matrices * (4 + 20.0 / 128) / 8 + rest * 2);
}

TEST(Quantization, IgnoredModulesKeepTheirType) {
  auto ignoring = [](const json& list) {
    return read(quantized({{"quant_method", "fp8"}, {"modules_to_not_convert", list}}));
  };
  EXPECT_EQ(format_in(ignoring({"self_attn"}), "q_proj").name, "bf16");
  EXPECT_EQ(format_in(ignoring({"self_attn"}), "up_proj").name, "fp8");
  EXPECT_EQ(format_in(ignoring({"model.layers.*.self_attn"}), "o_proj").name, "bf16");
  EXPECT_EQ(format_in(ignoring({"o_proj"}), "o_proj").name, "bf16");
  EXPECT_EQ(format_in(ignoring({"gate"}), "gate_proj").name, "fp8");  // whole components only
  // One layer only: its group splits off.
  Model split = ignoring({"model.language_model.layers.3.mlp"});
  EXPECT_EQ(format_in(split, "up_proj", 2).name, "fp8");
  EXPECT_EQ(format_in(split, "up_proj", 3).name, "bf16");
  EXPECT_EQ(split.groups.size(), 2u);
}

TEST(Quantization, PatternsMatchWholeComponents) {
  const auto matches = [](std::string_view pattern, std::string_view path) {
    WorkLimit limit("patterns", 1000);
    return module_matches(pattern, path, limit);
  };
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_TRUE(matches("mlp.gate", "layers.3.mlp.gate"));
  EXPECT_FALSE(matches("mlp.gate", "layers.3.mlp.gate_proj"));
  EXPECT_TRUE(matches("*self_attn*", "layers.3.self_attn.q_proj"));
  EXPECT_TRUE(matches("layers.3*", "layers.3.mlp.gate"));
  EXPECT_TRUE(matches("re:.*mlp\\.gate$", "layers.3.mlp.gate"));
  EXPECT_FALSE(matches("re:.*mlp\\.gate$", "layers.3.mlp.gate_proj"));
  EXPECT_TRUE(matches("re:.*self_attn\\.(q|k|v)_proj", "layers.0.self_attn.k_proj"));
  EXPECT_FALSE(matches("re:.*self_attn\\.(q|k|v)_proj", "layers.0.self_attn.o_proj"));
  EXPECT_TRUE(matches("re:model.layers.\\d+.self_attn.*", "layers.12.self_attn.q_proj"));
}

TEST(Quantization, PatternsHaveALimit) {
  // "aaa" against "aab": three characters are compared.
  WorkLimit enough("patterns", 3), less("patterns", 2);
  EXPECT_FALSE(module_matches("aaa", "aab", enough));
  EXPECT_THROW(module_matches("aaa", "aab", less), Error);
  // Targets without end: 20,000 for each matrix of 1000 layers.
  nlohmann::json config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"],
      "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 1000,
      "num_attention_heads": 32, "num_hidden_layers": 1000, "torch_dtype": "bfloat16"})");
  nlohmann::json targets = nlohmann::json::array();
  for (int i = 0; i < 20'000; ++i) targets.push_back("re:layers.*x" + std::to_string(i));
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"config_groups",
       {{"g", {{"targets", targets}, {"weights", {{"num_bits", 4}, {"type", "int"}}}}}}}};
  try {
    read_config(config, "c.json");
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "c.json: quantization_config: more than 200000000 steps of work");
  }
}

TEST(Quantization, Mxfp4HoldsForExpertsOnly) {
  Model model = find_model("gpt-oss-20b");
  const Layer& layer = model.groups[0].layer;
  for (const Linear& linear : layer.linears) {
    bool expert = linear.stage == Stage::expert_in || linear.stage == Stage::expert_out;
    EXPECT_EQ(linear.format.name, expert ? "mxfp4" : "bf16") << linear.name;
  }
  EXPECT_NEAR(weight_bytes(model) / 1e9, 13.8, 0.1);  // the released checkpoint
}

TEST(Quantization, RoutersStayInSixteenBits) {
  Model model = find_model("deepseek-v3");
  EXPECT_EQ(format_in(model, "router", 10).name, "bf16");
  EXPECT_EQ(format_in(model, "experts.up_proj", 10).name, "fp8-block");
}

TEST(Quantization, CacheFormatIsTakenWhereSaid) {
  EXPECT_EQ(read(small_llama()).kv_format.name, "bf16");
  Model model = read(quantized(
      {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}}));
  EXPECT_EQ(model.kv_format.name, "fp8");
}

TEST(Quantization, WeightTypeFollowsTheConfig) {
  EXPECT_EQ(read(with(small_llama(), {{"torch_dtype", "float16"}})).embed_format.name, "fp16");
  EXPECT_EQ(read(with(small_llama(), {{"dtype", "float32"}})).embed_format.name, "fp32");
  EXPECT_EQ(read(small_llama()).embed_format.name, "bf16");
}

TEST(Quantization, NonsenseIsRefused) {
  EXPECT_NE(refusal(quantized({{"quant_method", "awq"}, {"bits", 77}})), "");
  EXPECT_NE(refusal(quantized({{"quant_method", "awq"}})), "");
  EXPECT_NE(refusal(quantized({{"quant_method", "fp8"}, {"weight_block_size", {128}}})), "");
  EXPECT_NE(refusal(quantized({{"quant_method", "fp8"}, {"weight_block_size", {0, 128}}})), "");
  EXPECT_NE(refusal(quantized({{"quant_method", "bitsandbytes"}})), "");
  EXPECT_NE(refusal(quantized({{"quant_method", "compressed-tensors"}})), "");
  EXPECT_NE(refusal(quantized({{"quant_method", "fp8"}, {"ignore", {1, 2}}})), "");
}

}  // namespace
}  // namespace ridge
