// Small models of every family made in code, as files.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/weights/load_parts.h"
#include "engine/weights/storage.h"
#include "engine/weights/weights.h"
#include "model/read.h"

namespace ridge::made {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using TensorMap = std::map<std::string, Tensor>;

inline nlohmann::json llama_config() {
  return {{"model_type", "llama"},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 96},
          {"vocab_size", 40},
          {"max_position_embeddings", 128},
          {"tie_word_embeddings", false},
          {"torch_dtype", "float32"}};
}

inline nlohmann::json changed(const nlohmann::json& changes) {
  nlohmann::json config = llama_config();
  config.update(changes);
  return config;
}

// llama, mistral, qwen2, qwen3, gemma3_text (4), gemma2, mixtral, phi3, glm4, qwen3_moe (last).
inline std::vector<nlohmann::json> configs() {
  const nlohmann::json gemma = {
      {"head_dim", 32}, {"sliding_window", 8}, {"tie_word_embeddings", true}};
  nlohmann::json gemma2 = changed(gemma), gemma3 = changed(gemma);
  gemma2["model_type"] = "gemma2";
  gemma3["model_type"] = "gemma3_text";
  return {
      llama_config(),
      changed({{"model_type", "mistral"}, {"sliding_window", 8}}),
      changed({{"model_type", "qwen2"}}),
      changed({{"model_type", "qwen3"}, {"head_dim", 32}}),
      gemma3,
      gemma2,
      changed({{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 2}}),
      changed({{"model_type", "phi3"}}),
      changed({{"model_type", "glm4"}, {"head_dim", 32}, {"attention_bias", true}}),
      changed({{"model_type", "qwen3_moe"},
               {"head_dim", 32},
               {"num_experts", 4},
               {"num_experts_per_tok", 2},
               {"norm_topk_prob", true},
               {"moe_intermediate_size", 32}})};
}

// Every tensor the config needs under Hugging Face's names, with random values.
inline TensorMap tensors_of(const nlohmann::json& config) {
  Weights weights;
  weights.architecture = architecture_of(read_config(config, "made"));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.1f);
  TensorMap tensors;
  for (const Slot& slot : make_slots(weights)) {
    Tensor tensor;
    tensor.shape = {slot.rows};
    if (slot.matrix) tensor.shape.push_back(slot.columns);
    tensor.values.resize(size_t(slot.rows * (slot.matrix ? slot.columns : 1)));
    for (float& value : tensor.values) value = normal(random);
    tensors[tensor_name(FileKind::safetensors, weights.architecture, slot.role, slot.layer,
                        slot.expert)] = tensor;
  }
  return tensors;
}

// Replaces a layer's expert tensors by transformers 5's two.
inline void stack_experts(TensorMap& tensors) {
  TensorMap stacked;
  for (const auto& [name, tensor] : tensors) {
    const size_t at = name.find("mlp.experts.");
    if (at == std::string::npos) {
      stacked[name] = tensor;
      continue;
    }
    const std::string prefix = name.substr(0, at + 12);
    if (!name.ends_with("gate_proj.weight")) continue;
    const std::string own = name.substr(0, name.size() - std::strlen("gate_proj.weight"));
    const Tensor &up = tensors.at(own + "up_proj.weight"),
                 &down = tensors.at(own + "down_proj.weight");
    Tensor &both = stacked[prefix + "gate_up_proj"], &downs = stacked[prefix + "down_proj"];
    const int64_t count = both.shape.empty() ? 1 : both.shape[0] + 1;
    both.shape = {count, 2 * tensor.shape[0], tensor.shape[1]};
    downs.shape = {count, down.shape[0], down.shape[1]};
    auto append = [](Tensor& to, const Tensor& from) {
      to.values.insert(to.values.end(), from.values.begin(), from.values.end());
    };
    append(both, tensor);
    append(both, up);
    append(downs, down);
  }
  tensors = stacked;
}

// q above k above v, and gate above up, in one tensor each, as Phi-3 stores them.
inline void fuse_matrices(TensorMap& tensors) {
  const auto fuse = [&](const std::string& layer, const std::string& to,
                        std::initializer_list<const char*> parts) {
    Tensor all;
    for (const char* part : parts) {
      const Tensor& from = tensors.at(layer + part);
      if (all.shape.empty()) all.shape = {0, from.shape[1]};
      all.shape[0] += from.shape[0];
      all.values.insert(all.values.end(), from.values.begin(), from.values.end());
      tensors.erase(layer + part);
    }
    tensors[layer + to] = all;
  };
  for (int i = 0; tensors.contains("model.layers." + std::to_string(i) + ".mlp.up_proj.weight");
       ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    fuse(layer, "self_attn.qkv_proj.weight",
         {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"});
    fuse(layer, "mlp.gate_up_proj.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"});
  }
}

// `dtype` F32, F16, BF16, or any other of four bytes.
inline std::string safetensors(const TensorMap& tensors, const std::string& dtype) {
  const Storage storage = dtype == "F16"    ? Storage::f16
                          : dtype == "BF16" ? Storage::bf16
                                            : Storage::f32;
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    std::string bytes(storage_bytes(storage, int64_t(tensor.values.size())), '\0');
    quantize(storage, tensor.values.data(), int64_t(tensor.values.size()),
             reinterpret_cast<std::byte*>(bytes.data()));
    header[name] = {{"dtype", dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
}

inline std::vector<float> values(const Matrix& matrix) {
  std::vector<float> all(size_t(matrix.rows * matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    dequantize(matrix.storage, matrix.row(row), matrix.columns, &all[size_t(row * matrix.columns)]);
  }
  return all;
}

inline void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace ridge::made
