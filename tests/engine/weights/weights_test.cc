// Loading what lies in files, and refusing what does not fit.
#include "engine/weights/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/made_files.h"
#include "engine/weights/load_tensors.h"
#include "fuzz/sample_files.h"
#include "model/gguf.h"

namespace ridge {
namespace {

using nlohmann::json;

std::string message(const json& config, const std::string& file) {
  const NamedBytes shard{file, "x.safetensors"};
  try {
    weights_from_safetensors(config, "config.json", {&shard, 1});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string gguf_message(const std::string& file) {
  const NamedBytes piece{file, "x.gguf"};
  try {
    weights_from_gguf({&piece, 1});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Weights, FoldersBecomeViewsOfTheirFiles) {
  const json config = made::llama_config();
  const auto tensors = made::tensors_of(config);
  const std::string file = made::safetensors(tensors, "F32");
  const NamedBytes shard{file, "x"};
  const Weights weights = weights_from_safetensors(config, "config.json", {&shard, 1});
  ASSERT_EQ(weights.layers.size(), 2u);
  const LayerWeights& layer = weights.layers[1];
  EXPECT_EQ(made::values(layer.q), tensors.at("model.layers.1.self_attn.q_proj.weight").values);
  EXPECT_EQ(made::values(layer.down), tensors.at("model.layers.1.mlp.down_proj.weight").values);
  EXPECT_EQ(layer.mlp_norm, tensors.at("model.layers.1.post_attention_layernorm.weight").values);
  EXPECT_EQ(made::values(weights.head), tensors.at("lm_head.weight").values);
  EXPECT_GE(reinterpret_cast<const char*>(layer.q.data), file.data());
  EXPECT_LT(reinterpret_cast<const char*>(layer.q.data), file.data() + file.size());
  EXPECT_EQ(weights.copied_bytes, 0);
  EXPECT_EQ(weights.model.embed_format.name, "fp32");
  EXPECT_EQ(weights.model.layers(), 2);
  EXPECT_EQ(weights.bytes, weight_bytes(weights.model));
}

TEST(Weights, EveryFamilyLoads) {
  for (const json& config : made::configs()) {
    const auto tensors = made::tensors_of(config);
    const std::string file = made::safetensors(tensors, "BF16");
    const NamedBytes shard{file, "x"};
    const Weights weights = weights_from_safetensors(config, "config.json", {&shard, 1});
    const std::string type = weights.architecture.family;
    EXPECT_EQ(weights.architecture.tied, weights.head.data == weights.embed.data) << type;
    double elements = 0;
    for (const auto& [name, tensor] : tensors) elements += double(tensor.values.size());
    EXPECT_DOUBLE_EQ(parameters(weights.model), elements) << type;
    if (type == "gemma2") {
      const float stored = tensors.at("model.norm.weight").values[5];
      EXPECT_FLOAT_EQ(weights.final_norm[5], 1 + bf16_to_f32(f32_to_bf16(stored)));
      EXPECT_EQ(weights.layers[0].post_attn_norm.size(), 64u);
    }
    if (weights.architecture.experts > 0) {
      ASSERT_EQ(weights.layers[1].expert_up.size(), 4u) << type;
      EXPECT_TRUE(weights.layers[1].expert_up[3]) << type;
    }
  }
}

// Transformers 5: all experts of a layer in two tensors.
TEST(Weights, StackedExpertsAreViewsToo) {
  const json config = made::configs().back();
  ASSERT_EQ(config.at("model_type"), "qwen3_moe");
  auto tensors = made::tensors_of(config);
  const auto gate = tensors.at("model.layers.1.mlp.experts.2.gate_proj.weight").values;
  const auto up = tensors.at("model.layers.1.mlp.experts.2.up_proj.weight").values;
  const auto down = tensors.at("model.layers.1.mlp.experts.2.down_proj.weight").values;
  made::stack_experts(tensors);
  const std::string file = made::safetensors(tensors, "F32");
  const NamedBytes shard{file, "x"};
  const Weights weights = weights_from_safetensors(config, "config.json", {&shard, 1});
  EXPECT_EQ(made::values(weights.layers[1].expert_gate[2]), gate);
  EXPECT_EQ(made::values(weights.layers[1].expert_up[2]), up);
  EXPECT_EQ(made::values(weights.layers[1].expert_down[2]), down);
}

// Llama 4 stores a layer's experts by columns, gate left of up, inside a model that sees.
TEST(Weights, ExpertsByColumnsBecomeRows) {
  const json text = made::changed({{"model_type", "llama4_text"},
                                   {"head_dim", 16},
                                   {"intermediate_size", 40},
                                   {"num_local_experts", 3},
                                   {"num_experts_per_tok", 1}});
  const auto separate = made::tensors_of(text);
  made::TensorMap tensors;
  for (const auto& [name, tensor] : separate) {
    const std::string own = "language_model." + name;
    const size_t at = own.find("experts.");
    if (at == std::string::npos) {
      tensors[own] = tensor;
      continue;
    }
    const bool down = name.ends_with("down_proj.weight"), up = name.ends_with("up_proj.weight");
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const int64_t stride = down ? rows : 2 * rows, expert = std::stoi(own.substr(at + 8));
    made::Tensor& to = tensors[own.substr(0, at + 8) + (down ? "down_proj" : "gate_up_proj")];
    to.shape = {3, columns, stride};
    to.values.resize(size_t(3 * columns * stride));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        to.values[size_t((expert * columns + c) * stride + r + (up && !down ? rows : 0))] =
            tensor.values[size_t(r * columns + c)];
      }
    }
  }
  const std::string file = made::safetensors(tensors, "F32");
  const NamedBytes shard{file, "x"};
  const Weights weights = weights_from_safetensors(
      {{"model_type", "llama4"}, {"text_config", text}}, "config.json", {&shard, 1});
  const LayerWeights& layer = weights.layers[1];
  const std::string name = "model.layers.1.feed_forward.experts.2.";
  EXPECT_EQ(made::values(layer.expert_gate[2]), separate.at(name + "gate_proj.weight").values);
  EXPECT_EQ(made::values(layer.expert_up[2]), separate.at(name + "up_proj.weight").values);
  EXPECT_EQ(made::values(layer.expert_down[2]), separate.at(name + "down_proj.weight").values);
}

TEST(Weights, FurtherTokenHeadsOfDeepseekAreSkipped) {
  const json config = {
      {"model_type", "deepseek_v3"}, {"hidden_size", 32},     {"num_hidden_layers", 2},
      {"num_attention_heads", 2},    {"vocab_size", 40},      {"intermediate_size", 32},
      {"q_lora_rank", 16},           {"kv_lora_rank", 16},    {"qk_nope_head_dim", 8},
      {"qk_rope_head_dim", 8},       {"v_head_dim", 8},       {"n_routed_experts", 4},
      {"num_experts_per_tok", 1},    {"n_shared_experts", 1}, {"moe_intermediate_size", 16},
      {"first_k_dense_replace", 1},  {"n_group", 2},          {"topk_group", 1}};
  auto tensors = made::tensors_of(config);
  EXPECT_EQ(message(config, made::safetensors(tensors, "BF16")), "");
  tensors["model.layers.2.eh_proj.weight"] = {{32, 64}, std::vector<float>(32 * 64)};
  EXPECT_EQ(message(config, made::safetensors(tensors, "BF16")), "");
  tensors["model.layers.1.eh_proj.weight"] = {{32, 64}, std::vector<float>(32 * 64)};
  EXPECT_EQ(
      message(config, made::safetensors(tensors, "BF16")),
      "x.safetensors: tensor model.layers.1.eh_proj.weight has no place in this architecture");
}

// Phi-3 stores q above k above v, and gate above up.
TEST(Weights, FusedMatricesAreCut) {
  const json config = made::changed({{"model_type", "phi3"}});
  const auto separate = made::tensors_of(config);
  auto tensors = separate;
  made::fuse_matrices(tensors);
  const std::string file = made::safetensors(tensors, "F32");
  const NamedBytes shard{file, "x"};
  const Weights weights = weights_from_safetensors(config, "config.json", {&shard, 1});
  const LayerWeights& layer = weights.layers[1];
  const auto values = [&](const char* name) { return separate.at(name).values; };
  EXPECT_EQ(made::values(layer.q), values("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_EQ(made::values(layer.k), values("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_EQ(made::values(layer.v), values("model.layers.1.self_attn.v_proj.weight"));
  EXPECT_EQ(made::values(layer.gate), values("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_EQ(made::values(layer.up), values("model.layers.1.mlp.up_proj.weight"));
  tensors.at("model.layers.0.self_attn.qkv_proj.weight").shape = {64, 128};
  EXPECT_EQ(message(config, made::safetensors(tensors, "F32")),
            "x.safetensors: model.layers.0.self_attn.qkv_proj.weight is 64 x 128, the model needs "
            "128 x 64");
}

// GLM-4 rotates neighbours, and the first half of a head only.
TEST(Weights, InterleavedRowsAreRestored) {
  const json config =
      made::changed({{"model_type", "glm4"}, {"head_dim", 16}, {"attention_bias", true}});
  const auto tensors = made::tensors_of(config);
  const std::string file = made::safetensors(tensors, "F32");
  const NamedBytes shard{file, "x"};
  const Weights weights = weights_from_safetensors(config, "config.json", {&shard, 1});
  const auto stored = tensors.at("model.layers.0.self_attn.k_proj.weight").values;
  const auto bias = tensors.at("model.layers.0.self_attn.k_proj.bias").values;
  const auto found = made::values(weights.layers[0].k);
  for (size_t row = 0; row < 32; ++row) {
    // Of 16 rows the first 8 are rotated: row 4 s + j comes from row 2 j + s.
    const size_t within = row % 16, from = within < 8 ? within % 4 * 2 + within / 4 : within;
    EXPECT_EQ(found[row * 64 + 5], stored[(row - within + from) * 64 + 5]) << row;
    EXPECT_EQ(weights.layers[0].k_bias[row], bias[row - within + from]) << row;
  }
  EXPECT_EQ(made::values(weights.layers[0].v),
            tensors.at("model.layers.0.self_attn.v_proj.weight").values);
  EXPECT_EQ(weights.layers[1].post_mlp_norm,
            tensors.at("model.layers.1.post_mlp_layernorm.weight").values);
}

// A one-layer Phi-3 with hidden 64, as llama.cpp writes it.
sample::Gguf tiny_phi3_gguf() {
  sample::Gguf file;
  file.text("general.architecture", "phi3")
      .number("phi3.block_count", 1)
      .number("phi3.embedding_length", 64)
      .number("phi3.feed_forward_length", 96)
      .number("phi3.context_length", 128)
      .number("phi3.attention.head_count", 4)
      .number("phi3.attention.head_count_kv", 2)
      .number("phi3.rope.dimension_count", 12)
      .number("phi3.rope.scaling.original_context_length", 32);
  file.tensor("token_embd.weight", {64, 3}, 1, 64 * 3 * 2);
  file.tensor("blk.0.attn_qkv.weight", {64, 128}, 0, 64 * 128 * 4);
  file.tensor("blk.0.attn_output.weight", {64, 64}, 8, 64 * 64 / 32 * 34);
  file.tensor("blk.0.ffn_up.weight", {64, 192}, 0, 64 * 192 * 4);
  file.tensor("blk.0.ffn_down.weight", {96, 64}, 2, 96 * 64 / 32 * 18);
  file.tensor("blk.0.attn_norm.weight", {64}, 0, 64 * 4);
  file.tensor("blk.0.ffn_norm.weight", {64}, 0, 64 * 4);
  file.tensor("output_norm.weight", {64}, 0, 64 * 4);
  file.tensor("rope_factors_long.weight", {6}, 0, 24);
  file.tensor("rope_factors_short.weight", {6}, 0, 24);
  return file;
}

TEST(Weights, Phi3GgufsAreCutAndScaled) {
  std::string file = tiny_phi3_gguf().bytes();
  EXPECT_EQ(gguf_message(file), "x.gguf: rope_factors_long.weight must hold positive numbers");
  const GgufHeader header = parse_gguf(file, "x");
  const auto put = [&](const char* tensor, size_t index, float value) {
    std::memcpy(&file[header.tensors.at(tensor).offset + 4 * index], &value, 4);
  };
  for (size_t i = 0; i < 6; ++i) {
    put("rope_factors_long.weight", i, 8);
    put("rope_factors_short.weight", i, 2);
  }
  put("blk.0.attn_qkv.weight", 64 * 64 + 3, 5);  // k[0][3]
  put("blk.0.attn_qkv.weight", 96 * 64 + 4, 6);  // v[0][4]
  put("blk.0.ffn_up.weight", 1, 7);              // gate[0][1]
  put("blk.0.ffn_up.weight", 96 * 64 + 2, 8);    // up[0][2]
  const NamedBytes piece{file, "x.gguf"};
  const Weights weights = weights_from_gguf({&piece, 1});
  const LayerWeights& layer = weights.layers[0];
  EXPECT_EQ(made::values(layer.k)[3], 5);
  EXPECT_EQ(made::values(layer.v)[4], 6);
  EXPECT_EQ(made::values(layer.gate)[1], 7);
  EXPECT_EQ(made::values(layer.up)[2], 8);
  const Rope& rope = weights.architecture.ropes[0];
  EXPECT_EQ(rope.dims(), 12);
  EXPECT_EQ(rope.original_context, 32);
  EXPECT_FLOAT_EQ(rope.frequency[0], 0.5f);
  EXPECT_FLOAT_EQ(rope.long_frequency[0], 0.125f);
}

TEST(Weights, PrefixesOfMultimodalModelsAreFound) {
  const json config = made::configs()[4];
  ASSERT_EQ(config.at("model_type"), "gemma3_text");
  const json wrapped = {{"model_type", "gemma3"}, {"text_config", config}};
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    made::TensorMap renamed;
    for (const auto& [name, tensor] : made::tensors_of(config)) {
      renamed[prefix + name.substr(6)] = tensor;
    }
    const std::string file = made::safetensors(renamed, "F32");
    EXPECT_EQ(message(wrapped, file), "");
  }
}

TEST(Weights, RefusalsNameTheTensor) {
  const json config = made::llama_config();
  auto with = [&](auto change) {
    auto tensors = made::tensors_of(config);
    change(tensors);
    return message(config, made::safetensors(tensors, "F32"));
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_EQ(with([](auto& t) { t.erase("model.layers.1.mlp.up_proj.weight"); }),
            "config.json: tensor model.layers.1.mlp.up_proj.weight is missing");
  EXPECT_EQ(with([](auto& t) { t.erase("lm_head.weight"); }).find("config.json: tensor"), 0u);
  EXPECT_EQ(with([](auto& t) {
              t.at("model.layers.0.self_attn.k_proj.weight").shape = {64, 32};
            }),
            "x.safetensors: model.layers.0.self_attn.k_proj.weight is 64 x 32, the model needs 32 "
            "x 64");
  EXPECT_EQ(with([](auto& t) {
              t["model.layers.0.self_attn.q_proj.bias"] = {{64}, Vector(64)};
            }),
            "x.safetensors: tensor model.layers.0.self_attn.q_proj.bias has no place in this "
            "architecture");
  EXPECT_EQ(with([](auto& t) {
              t["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{8}, Vector(8)};
            }),
            "");
  EXPECT_NE(with([](auto& t) { t.at("model.norm.weight").values[3] = NAN; }), "");
  EXPECT_EQ(message(config, made::safetensors(made::tensors_of(config), "I32")),
            "x.safetensors: model.embed_tokens.weight is stored as I32, which is not executed");

  const std::string file = made::safetensors(made::tensors_of(config), "F32");
  const NamedBytes twice[] = {{file, "a"}, {file, "b"}};
  EXPECT_THROW(weights_from_safetensors(config, "config.json", twice), Error);
}

TEST(Weights, GgufRowsAreRestored) {
  const std::string file = sample::tiny_llama_gguf().bytes();
  std::string changed = file;
  // Row r of q (q8_0, 64 columns: 68 bytes) starts with the scale r + 1.
  const GgufHeader header = parse_gguf(file, "x");
  const GgufTensor& q = header.tensors.at("blk.0.attn_q.weight");
  for (int row = 0; row < 64; ++row) {
    const uint16_t d = f32_to_f16(float(row + 1));
    std::memcpy(&changed[q.offset + size_t(row) * 68], &d, 2);
    changed[q.offset + size_t(row) * 68 + 2] = 1;
  }
  const NamedBytes piece{changed, "x.gguf"};
  const Weights weights = weights_from_gguf({&piece, 1});
  const LayerWeights& layer = weights.layers[0];
  float first[64];
  for (int row = 0; row < 64; ++row) {
    dequantize(Storage::q8_0, layer.q.row(row), 64, first);
    // Heads of 16: row 8 s + j of a head comes from row 2 j + s.
    const int head = row / 16, j = row % 8, s = row % 16 / 8;
    EXPECT_EQ(first[0], float(head * 16 + 2 * j + s + 1)) << row;
  }
  EXPECT_EQ(layer.v.storage, Storage::q8_0);
  EXPECT_EQ(layer.gate.storage, Storage::q4_0);
  EXPECT_EQ(weights.copied_bytes, (64 + 32) * 68);
  EXPECT_EQ(weights.model.head.format.name, "fp16");
}

TEST(Weights, HostileGgufsEndInOneLine) {
  sample::Gguf short_rows = sample::tiny_llama_gguf();
  EXPECT_EQ(gguf_message(short_rows.bytes()), "");
  sample::Gguf unknown = sample::tiny_llama_gguf();
  unknown.tensor("blk.0.attn_q.bias2", {64}, 0, 256);
  EXPECT_NE(gguf_message(unknown.bytes()), "");
  sample::Gguf no_layer = sample::tiny_llama_gguf();
  std::string bytes = no_layer.bytes();
  const size_t count = bytes.find("llama.block_count") + 17 + 4;
  bytes[count] = 2;
  EXPECT_EQ(gguf_message(bytes), "x.gguf: tensor blk.1.attn_norm.weight is missing");
  for (size_t length = 0; length < bytes.size(); length += 97) {
    EXPECT_NE(gguf_message(bytes.substr(0, length)), "") << length;
  }
}

TEST(Weights, TheModelInsideTheProgramLoads) {
  const Weights weights = load_weights("");
  EXPECT_EQ(weights.architecture.family, "llama");
  EXPECT_EQ(weights.source, "ridge-7m");
  EXPECT_GT(weights.bytes, 1000);
  EXPECT_GT(load_weights("ridge-1m").bytes, 1000);
}

TEST(Weights, FoldersOnDisk) {
  const auto folder = std::filesystem::temp_directory_path() / "ridge_weights_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const json config = made::llama_config();
  // Two shards, their index naming them.
  made::TensorMap halves[2];
  json index = {{"weight_map", json::object()}};
  size_t i = 0;
  for (const auto& [name, tensor] : made::tensors_of(config)) {
    const size_t which = i++ % 2;
    halves[which][name] = tensor;
    index["weight_map"][name] = which == 0 ? "a.safetensors" : "b.safetensors";
  }
  made::write(folder / "config.json", config.dump());
  made::write(folder / "generation_config.json", R"({"eos_token_id": [7, 9], "bos_token_id": 1})");
  made::write(folder / "model.safetensors.index.json", index.dump());
  made::write(folder / "a.safetensors", made::safetensors(halves[0], "F16"));
  made::write(folder / "b.safetensors", made::safetensors(halves[1], "BF16"));
  const Weights weights = load_weights(folder.string());
  EXPECT_EQ(weights.model.name, "ridge_weights_test");
  EXPECT_EQ(weights.architecture.ends, (std::vector<int>{7, 9}));
  EXPECT_EQ(weights.tokenizer, nullptr);
  std::filesystem::remove(folder / "b.safetensors");
  EXPECT_THROW(load_weights(folder.string()), Error);
  EXPECT_THROW(load_weights((folder / "none.gguf").string()), Error);
  EXPECT_THROW(load_weights("llama-3-8b"), Error);
  std::filesystem::remove_all(folder);
}

double deviation(const Matrix& matrix, double* mean) {
  const std::vector<float> all = made::values(matrix);
  double sum = 0, squares = 0;
  for (float value : all) sum += value, squares += double(value) * value;
  *mean = sum / double(all.size());
  return std::sqrt(squares / double(all.size()) - *mean * *mean);
}

// 512 x 1024 numbers: the deviation's own error is 0.02 / sqrt(2 n) = 0.00002.
TEST(RandomWeights, HaveTheirDeviationInEveryStorage) {
  const auto config = std::filesystem::temp_directory_path() / "ridge_random_test.json";
  made::write(config, made::changed({{"hidden_size", 1024}, {"intermediate_size", 512}}).dump());
  for (int i = 0; i < kStorageCount; ++i) {
    const auto storage = Storage(i);
    const Weights weights = random_weights(config.string(), storage, 1, 2);
    const Matrix& matrix = weights.layers[1].gate;
    EXPECT_EQ(matrix.storage, storage);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix.data) % 64, 0u);
    double mean = 0;
    EXPECT_NEAR(deviation(matrix, &mean), 0.02, 0.0012) << storage_info(storage).name;
    EXPECT_LT(std::fabs(mean), 0.0012) << storage_info(storage).name;
    EXPECT_EQ(weights.layers[0].attn_norm, Vector(1024, 1.0f));
    EXPECT_EQ(weights.model.head.format.name, storage_info(storage).name);
  }
  std::filesystem::remove(config);
}

TEST(RandomWeights, DependOnTheSeedAlone) {
  const Weights one = random_weights("smollm2-135m", Storage::q4_0, 7, 1);
  const Weights two = random_weights("smollm2-135m", Storage::q4_0, 7, 3);
  const Weights other = random_weights("smollm2-135m", Storage::q4_0, 8, 2);
  const Matrix &a = one.layers[5].up, &b = two.layers[5].up, &c = other.layers[5].up;
  const auto bytes = size_t(a.bytes());
  EXPECT_EQ(std::memcmp(a.data, b.data, bytes), 0);
  EXPECT_NE(std::memcmp(a.data, c.data, bytes), 0);
  EXPECT_NE(std::memcmp(a.data, one.layers[6].up.data, bytes), 0);
  EXPECT_NE(std::memcmp(a.row(0), a.row(1), size_t(a.row_stride)), 0);
}

TEST(RandomWeights, RefuseWhatDoesNotFit) {
  EXPECT_THROW(random_weights("llama-3.1-405b", Storage::f32, 1, 1), Error);
  EXPECT_THROW(random_weights("deepseek-v3", Storage::q4_0, 1, 1), Error);
  EXPECT_THROW(random_weights("no-such-model", Storage::q4_0, 1, 1), Error);
  EXPECT_EQ(random_weights("", Storage::q8_0, 1, 1).source, "ridge-7m, random:1");
}

}  // namespace
}  // namespace ridge
