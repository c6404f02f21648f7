// Small models of every family, with random weights.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cuda/on_device.h"
#include "engine/weights/weights.h"

namespace ridge {

struct DeviceFamily {
  const char* name;
  const char* config;
};

inline const DeviceFamily kFamilies[] = {
    {"llama", R"({"model_type":"llama","hidden_size":512,"num_hidden_layers":2,
      "num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":1536,"vocab_size":1000,
      "rms_norm_eps":1e-5,"rope_theta":10000.0,"max_position_embeddings":1024})"},
    {"mistral", R"({"model_type":"mistral","hidden_size":512,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":4,"intermediate_size":1024,"vocab_size":777,
      "sliding_window":24,"max_position_embeddings":1024})"},
    {"qwen2", R"({"model_type":"qwen2","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "max_position_embeddings":512,"rope_theta":1000000.0,"rms_norm_eps":1e-6})"},
    {"qwen3", R"({"model_type":"qwen3","hidden_size":256,"num_hidden_layers":2,"head_dim":64,
      "num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "max_position_embeddings":512,"rope_theta":1000000.0,"rms_norm_eps":1e-6})"},
    {"gemma2", R"({"model_type":"gemma2","hidden_size":256,"num_hidden_layers":2,"head_dim":256,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "sliding_window":24,"query_pre_attn_scalar":256,"max_position_embeddings":512})"},
    {"gemma3", R"({"model_type":"gemma3_text","hidden_size":256,"num_hidden_layers":3,
      "head_dim":128,"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":528,
      "vocab_size":300,"sliding_window":24,"sliding_window_pattern":2,"query_pre_attn_scalar":128,
      "max_position_embeddings":512})"},
    {"mixtral", R"({"model_type":"mixtral","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,"vocab_size":300,
      "num_local_experts":4,"num_experts_per_tok":2,"max_position_embeddings":512})"},
    {"qwen3_moe", R"({"model_type":"qwen3_moe","hidden_size":256,"num_hidden_layers":3,
      "head_dim":64,"num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":512,
      "moe_intermediate_size":144,"num_experts":40,"num_experts_per_tok":4,"mlp_only_layers":[1],
      "norm_topk_prob":true,"vocab_size":300,"max_position_embeddings":512})"},
    {"phi3", R"({"model_type":"phi3","hidden_size":384,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "partial_rotary_factor":0.75,"sliding_window":40,"max_position_embeddings":512,
      "original_max_position_embeddings":32,"rope_scaling":{"type":"longrope",
      "short_factor":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],
      "long_factor":[1,1,1,1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2,2,2,2,5,5,5,5,5,5,5,5,5,5,5,5]}})"},
    {"glm4", R"({"model_type":"glm4","hidden_size":256,"num_hidden_layers":2,"head_dim":128,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":528,"vocab_size":300,
      "attention_bias":true,"max_position_embeddings":512})"},
    {"gpt_oss", R"({"model_type":"gpt_oss","hidden_size":256,"num_hidden_layers":2,"head_dim":64,
      "num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":160,"vocab_size":300,
      "num_local_experts":12,"num_experts_per_tok":4,"sliding_window":24,
      "max_position_embeddings":512,"rope_scaling":{"rope_type":"yarn","factor":4.0,
      "truncate":false,"original_max_position_embeddings":128}})"},
    // Chunks and temperatures within 90 tokens, two experts of a token.
    {"llama4", R"({"model_type":"llama4_text","hidden_size":256,"num_hidden_layers":4,
      "num_attention_heads":8,"num_key_value_heads":2,"head_dim":64,"intermediate_size":160,
      "intermediate_size_mlp":512,"vocab_size":300,"num_local_experts":6,"num_experts_per_tok":2,
      "interleave_moe_layer_step":2,"attention_chunk_size":32,"floor_scale":8,"attn_scale":0.1,
      "max_position_embeddings":512})"},
    // The latents of V2-Lite: 512 + 64 columns, one tile of 16 heads for a token.
    {"deepseek_v2", R"({"model_type":"deepseek_v2","hidden_size":256,"num_hidden_layers":3,
      "num_attention_heads":16,"intermediate_size":512,"vocab_size":300,"q_lora_rank":null,
      "kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
      "n_routed_experts":8,"num_experts_per_tok":2,"n_shared_experts":2,
      "moe_intermediate_size":160,"first_k_dense_replace":1,"topk_method":"group_limited_greedy",
      "n_group":4,"topk_group":2,"routed_scaling_factor":4.0,"max_position_embeddings":1024})"},
    // Queries through a latent of their own, narrower latents, more heads than a tile of 16.
    {"deepseek_v3", R"({"model_type":"deepseek_v3","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":20,"intermediate_size":512,"vocab_size":300,"q_lora_rank":192,
      "kv_lora_rank":256,"qk_nope_head_dim":48,"qk_rope_head_dim":16,"v_head_dim":40,
      "n_routed_experts":16,"num_experts_per_tok":3,"n_shared_experts":1,
      "moe_intermediate_size":160,"first_k_dense_replace":1,"n_group":4,"topk_group":2,
      "routed_scaling_factor":2.5,"norm_topk_prob":true,"max_position_embeddings":512,
      "rope_scaling":{"type":"yarn","factor":4.0,"mscale":0.8,"mscale_all_dim":0.6,
      "original_max_position_embeddings":128}})"},
};
inline const DeviceFamily& family_of(std::string_view name) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                       [&](const DeviceFamily& family) { return family.name == name; });
}

inline const char* const kRefused =
    R"({"model_type":"llama","hidden_size":480,"num_hidden_layers":2,
      "head_dim":64,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,
      "vocab_size":300,"max_position_embeddings":512})";

class Config {
 public:
  explicit Config(const std::string& text) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("ridge-cuda-{}-{}.json", ::getpid(), count++);
    std::ofstream(path_) << text;
  }
  ~Config() { std::filesystem::remove(path_); }
  Weights weights() const { return random_weights(path_.string(), Storage::bf16, 7, 1); }

 private:
  std::filesystem::path path_;
};

// Null, with the reason, where there is no device.
inline std::unique_ptr<Runner> cuda_runner(const Config& config, std::string& why,
                                           RunnerOptions options = {},
                                           KvStorage kv = KvStorage::bf16) {
  options.kv = kv;
  if (options.max_sequences == 1) options.max_sequences = 40;
  if (options.max_logit_rows == 0) options.max_logit_rows = 160;
  return on_device(config.weights(), options, why);
}

inline std::vector<Token> prompt(int count, int seed, int vocab) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(Token((i * 37 + seed * 101) % vocab));
  return tokens;
}

}  // namespace ridge
