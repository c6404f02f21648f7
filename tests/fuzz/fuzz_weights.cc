// Any bytes as a model's weights: an Error, or matrices that lie inside the bytes they came from. A
// GGUF, or a config.json, a zero byte, and a safetensors file.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "engine/made_files.h"
#include "engine/weights/load_tensors.h"
#include "replay.h"
#include "sample_files.h"

namespace {

using ridge::NamedBytes;
using ridge::Weights;

// Reads the ends of every matrix: outside the input the sanitizer objects.
void check(const Weights& weights) {
  float sum = 0;
  std::vector<float> row;
  for (const ridge::ConstSlot& slot : slots_of(weights)) {
    if (slot.vector) {
      if (!slot.vector->empty() && int64_t(slot.vector->size()) != slot.rows) std::abort();
      continue;
    }
    const ridge::Matrix& matrix = *slot.matrix;
    if (matrix.rows != slot.rows || matrix.columns != slot.columns) std::abort();
    row.resize(size_t(matrix.columns));
    for (int64_t r : {int64_t{0}, matrix.rows - 1}) {
      dequantize(matrix.storage, matrix.row(r), matrix.columns, row.data());
      sum += row.back();
    }
  }
  if (!std::isfinite(weights.bytes) || weights.bytes <= 0) std::abort();
  volatile float keep = sum;
  (void)keep;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    if (bytes.starts_with("GGUF")) {
      const NamedBytes file{bytes, "fuzz"};
      check(ridge::weights_from_gguf({&file, 1}));
    } else {
      const size_t end = bytes.find('\0');
      if (end == std::string_view::npos) return 0;
      const NamedBytes shard{bytes.substr(end + 1), "fuzz"};
      check(ridge::weights_from_safetensors(ridge::parse_json(bytes.substr(0, end), "fuzz"), "fuzz",
                                            {&shard, 1}));
    }
  } catch (const ridge::Error&) {
  }
  return 0;
}

namespace {

std::string folder_seed(const nlohmann::json& changes) {
  nlohmann::json config = {{"model_type", "llama"},
                           {"hidden_size", 8},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},
                           {"num_key_value_heads", 1},
                           {"intermediate_size", 8},
                           {"vocab_size", 4},
                           {"head_dim", 4},
                           {"tie_word_embeddings", true}};
  config.update(changes);
  std::string seed = config.dump();
  seed += '\0';
  return seed + ridge::made::safetensors(ridge::made::tensors_of(config), "BF16");
}

nlohmann::json deepseek_changes(const char* type) {
  return {{"model_type", type},
          {"num_hidden_layers", 2},
          {"q_lora_rank", 8},
          {"kv_lora_rank", 8},
          {"qk_nope_head_dim", 4},
          {"qk_rope_head_dim", 8},
          {"v_head_dim", 4},
          {"n_routed_experts", 4},
          {"num_experts_per_tok", 1},
          {"n_shared_experts", 1},
          {"moe_intermediate_size", 8},
          {"first_k_dense_replace", 1},
          {"n_group", 2},
          {"topk_group", 1}};
}

struct SeedTensor {
  std::string name;
  const char* dtype;
  std::vector<int64_t> shape;
};

// A folder whose layer 0 keeps its experts in `tensors`, instead of one for each.
std::string stacked_seed(const nlohmann::json& config, const std::string& experts,
                         std::vector<SeedTensor> tensors) {
  for (SeedTensor& tensor : tensors) tensor.name = experts + tensor.name;
  for (const auto& [name, tensor] : ridge::made::tensors_of(config)) {
    if (!name.starts_with(experts)) tensors.push_back({name, "BF16", tensor.shape});
  }
  nlohmann::json header;
  size_t end = 0;
  for (const SeedTensor& tensor : tensors) {
    size_t bytes = std::string_view(tensor.dtype) == "U8" ? 1 : 2;
    for (const int64_t extent : tensor.shape) bytes *= size_t(extent);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  std::string seed = config.dump();
  seed += '\0';
  return seed + ridge::sample::safetensors(header.dump(), end);
}

nlohmann::json experts_config(const char* type) {
  return {{"model_type", type},       {"hidden_size", 32},        {"num_hidden_layers", 1},
          {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"intermediate_size", 32},
          {"vocab_size", 4},          {"head_dim", 16},           {"num_local_experts", 2},
          {"num_experts_per_tok", 1}};
}

// MXFP4 in blocks and scales.
std::string gpt_oss_seed() {
  return stacked_seed(experts_config("gpt_oss"), "model.layers.0.mlp.experts.",
                      {{"gate_up_proj_blocks", "U8", {2, 64, 1, 16}},
                       {"gate_up_proj_scales", "U8", {2, 64, 1}},
                       {"gate_up_proj_bias", "BF16", {2, 64}},
                       {"down_proj_blocks", "U8", {2, 32, 1, 16}},
                       {"down_proj_scales", "U8", {2, 32, 1}},
                       {"down_proj_bias", "BF16", {2, 32}}});
}

// By columns.
std::string llama4_seed() {
  return stacked_seed(experts_config("llama4_text"), "model.layers.0.feed_forward.experts.",
                      {{"gate_up_proj", "BF16", {2, 32, 64}}, {"down_proj", "BF16", {2, 32, 32}}});
}

std::string gguf_seed(const std::string& name, bool experts) {
  ridge::sample::Gguf file;
  file.text("general.architecture", name)
      .number(name + ".block_count", 1)
      .number(name + ".embedding_length", 32)
      .number(name + ".feed_forward_length", 32)
      .number(name + ".attention.head_count", 2)
      .number(name + ".attention.head_count_kv", 1)
      .number(name + ".attention.key_length", 16);
  if (experts) file.number(name + ".expert_count", 2).number(name + ".expert_used_count", 1);
  file.tensor("token_embd.weight", {32, 4}, 30, 32 * 4 * 2);
  file.tensor("output_norm.weight", {32}, 0, 128);
  file.tensor("blk.0.attn_norm.weight", {32}, 0, 128);
  file.tensor("blk.0.ffn_norm.weight", {32}, 0, 128);
  file.tensor("blk.0.attn_q.weight", {32, 32}, 8, 34 * 32);
  file.tensor("blk.0.attn_k.weight", {32, 16}, 2, 18 * 16);
  file.tensor("blk.0.attn_v.weight", {32, 16}, 3, 20 * 16);
  file.tensor("blk.0.attn_output.weight", {32, 32}, 6, 22 * 32);
  if (experts) {
    file.tensor("blk.0.ffn_gate_inp.weight", {32, 2}, 0, 32 * 2 * 4);
    for (const char* part : {"gate", "up", "down"}) {
      file.tensor("blk.0.ffn_" + std::string(part) + "_exps.weight", {32, 32, 2}, 2, 18 * 64);
    }
    return file.bytes();
  }
  file.tensor("rope_freqs.weight", {8}, 0, 32);
  for (const char* part : {"gate", "up", "down"}) {
    file.tensor("blk.0.ffn_" + std::string(part) + ".weight", {32, 32}, 7, 24 * 32);
  }
  return file.bytes();
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {
      folder_seed(nlohmann::json::object()),
      folder_seed({{"model_type", "qwen2"}, {"use_sliding_window", true}, {"sliding_window", 4}}),
      folder_seed({{"model_type", "gemma3_text"},
                   {"rope_parameters",
                    {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}}},
                     {"sliding_attention", {{"rope_type", "default"}}}}}}),
      folder_seed(
          {{"model_type", "mixtral"},
           {"num_local_experts", 2},
           {"num_experts_per_tok", 1},
           {"rope_scaling",
            {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}}}),
      folder_seed({{"rope_scaling",
                    {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 32}}}}),
      folder_seed({{"model_type", "phi3"},
                   {"rope_scaling",
                    {{"type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 3}}}},
                   {"max_position_embeddings", 64},
                   {"original_max_position_embeddings", 32}}),
      folder_seed({{"model_type", "glm4"}, {"attention_bias", true}}),
      gpt_oss_seed(),
      folder_seed(deepseek_changes("deepseek_v2")),
      folder_seed(deepseek_changes("deepseek_v3")),
      llama4_seed(),
      gguf_seed("llama", false),
      gguf_seed("llama", true),
      gguf_seed("qwen2", false)};
}
