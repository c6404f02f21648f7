// Parameter, byte and cache counts against published figures and by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/dtype.h"
#include "base/json.h"
#include "model/read.h"

namespace ridge {
namespace {

Format bf16() { return format_from_name("bf16"); }

Model from_text(const char* text) { return read_config(parse_json(text, "test"), "test"); }

// Llama-3-70B keeps 8 heads x 128 x (k and v) x 2 bytes = 4096 bytes a token and layer.
TEST(Claim07, KvOfLlama70B) {
  Model model = find_model("llama-3-70b");
  double per_token = kv_bytes_per_token_full(model, bf16());
  EXPECT_EQ(per_token / model.layers(), 4096);
  EXPECT_EQ(per_token, 327680);
  EXPECT_EQ(kv_bytes_per_token(model, bf16()), 327680);
  double batch = 32 * sequence_bytes(model, 4096, bf16());
  EXPECT_NEAR(batch, 42.9e9, 0.05e9);  // the document's three digits
  EXPECT_GT(batch, 80e9 / 2 * 0.95);   // "half an H100"
}

// 80 layers of width 8192 at 8192 tokens, with 64 heads of their own or 8 shared ones.
TEST(Claim08, GroupedHeadsCacheEightTimesLess) {
  auto cache = [](int kv_heads) {
    nlohmann::json config = {{"model_type", "llama"},           {"hidden_size", 8192},
                             {"num_hidden_layers", 80},         {"num_attention_heads", 64},
                             {"intermediate_size", 28672},      {"vocab_size", 32000},
                             {"max_position_embeddings", 8192}, {"torch_dtype", "float16"},
                             {"num_key_value_heads", kv_heads}};
    return sequence_bytes(read_config(config, "config"), 8192, format_from_name("fp16"));
  };
  EXPECT_NEAR(cache(64), 21.5e9, 0.05e9);
  EXPECT_NEAR(cache(8), 2.7e9, 0.05e9);
  EXPECT_EQ(cache(64), 8 * cache(8));
}

TEST(Counts, LlamaByHand) {
  Model model = find_model("llama-3-8b");
  double attention = 4096.0 * 4096 * 2 + 4096.0 * 1024 * 2;
  double mlp = 3.0 * 4096 * 14336;
  double expected = 32 * (attention + mlp + 2 * 4096) + 2 * 128256.0 * 4096 + 4096;
  EXPECT_EQ(parameters(model), expected);
  EXPECT_EQ(active_parameters(model), expected);
  EXPECT_EQ(weight_bytes(model), 2 * expected);
}

TEST(Counts, TiedHeadIsCountedOnce) {
  Model model = find_model("llama-3.2-1b");
  ASSERT_TRUE(model.tied_embeddings);
  EXPECT_EQ(parameters(model), 1235814400);
}

TEST(Counts, OnlyChosenExpertsAreActive) {
  Model model = find_model("mixtral-8x7b");
  double idle = 32 * 6 * 3.0 * 4096 * 14336;  // six of eight experts in 32 layers
  EXPECT_EQ(parameters(model) - active_parameters(model), idle);
}

TEST(Counts, LatentAttentionKeepsOneCompressedVector) {
  Model model = find_model("deepseek-v3");
  EXPECT_EQ(kv_bytes_per_token_full(model, bf16()), 61 * (512 + 64) * 2);
  // Sparse attention adds an fp8 key of 128 and its fp32 scale, whatever the cache's format.
  Model sparse = find_model("deepseek-v3.2");
  EXPECT_EQ(kv_bytes_per_token_full(sparse, bf16()), 61 * ((512 + 64) * 2 + 128 + 4));
  EXPECT_EQ(kv_bytes_per_token_full(sparse, format_from_name("fp8")), 61 * (512 + 64 + 128 + 4));
}

TEST(Counts, WindowsCapTheCache) {
  Model model = find_model("gpt-oss-20b");  // half of 24 layers see 128 tokens
  double token = 8 * 64 * 2 * 2;
  EXPECT_EQ(kv_bytes_per_token_full(model, bf16()), 24 * token);
  EXPECT_EQ(kv_bytes_per_token(model, bf16()), 12 * token);
  EXPECT_EQ(sequence_bytes(model, 100, bf16()), 24 * token * 100);
  EXPECT_EQ(sequence_bytes(model, 10000, bf16()), 12 * token * (10000 + 128));
}

TEST(Counts, RecurrentLayersHoldAConstantState) {
  Model model = find_model("qwen3-next-80b-a3b");
  // 36 layers: 32 heads x 128 x 128 in fp32, and three inputs of a convolution over 8192 channels.
  double state = 36 * (32.0 * 128 * 128 * 4 + 8192.0 * 3 * 2);
  EXPECT_EQ(sequence_bytes(model, 0, bf16()), state);
  EXPECT_EQ(sequence_bytes(model, 1000, bf16()), state + 1000 * 12.0 * 2 * 512 * 2);
  EXPECT_EQ(kv_bytes_per_token_full(find_model("mamba-2.8b"), bf16()), 0);
}

TEST(Counts, LayersThatShareAnEarlierCacheStoreNone) {
  Model model = from_text(R"({"model_type": "gemma4_text", "hidden_size": 64, "head_dim": 16,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 4096,
    "sliding_window": 512, "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                    "full_attention"]})");
  EXPECT_EQ(kv_bytes_per_token_full(model, bf16()), 2 * 2 * 2 * 16 * 2);
  EXPECT_EQ(kv_bytes_per_token(model, bf16()), 2 * 2 * 16 * 2);
}

TEST(Counts, LinearsAreInTheOrderOfTheForwardPass) {
  for (const std::string& name : builtin_model_names()) {
    Model model = find_model(name);
    for (const LayerGroup& group : model.groups) {
      EXPECT_TRUE(
          std::is_sorted(group.layer.linears.begin(), group.layer.linears.end(),
                         [](const Linear& a, const Linear& b) { return a.stage < b.stage; }))
          << name;
    }
  }
}

TEST(Counts, ShardsFollowTheHeads) {
  Model llama = find_model("llama-3-70b");
  for (const Linear& linear : llama.groups[0].layer.linears) {
    bool out = linear.name == "o_proj" || linear.name == "down_proj";
    EXPECT_EQ(linear.shard, out ? Shard::row : Shard::column) << linear.name;
    bool keys = linear.name == "k_proj" || linear.name == "v_proj";
    bool heads = linear.name == "q_proj" || linear.name == "o_proj";
    EXPECT_EQ(linear.max_shards, keys ? 8 : heads ? 64 : 0) << linear.name;
  }
  Model deepseek = find_model("deepseek-v3");
  for (const LayerGroup& group : deepseek.groups) {
    for (const Linear& linear : group.layer.linears) {
      bool whole = linear.stage == Stage::mixer_down || linear.stage == Stage::router;
      EXPECT_EQ(linear.shard == Shard::replicated, whole) << linear.name;
    }
  }
}

}  // namespace
}  // namespace ridge
