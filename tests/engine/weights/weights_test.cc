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
