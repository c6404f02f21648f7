// What convert writes is what load reads.
#include "engine/convert/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/golden.h"
#include "engine/made_files.h"
#include "engine/weights/load_parts.h"
#include "engine/weights/weights.h"
#include "model/gguf.h"

namespace ridge {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Convert : public testing::Test {
 protected:
  Convert() {
    folder_ = fs::temp_directory_path() /
              ("ridge_convert_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Convert() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

void expect_same(const Weights& a, const Weights& b, const std::string& what) {
  const auto left = slots_of(a), right = slots_of(b);
  ASSERT_EQ(left.size(), right.size()) << what;
  for (size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i].role, right[i].role) << what;
    if (left[i].matrix) {
      ASSERT_EQ(made::values(*left[i].matrix), made::values(*right[i].matrix))
          << what << " role " << int(left[i].role) << " layer " << left[i].layer;
    } else {
      ASSERT_EQ(*left[i].vector, *right[i].vector) << what << " role " << int(left[i].role);
    }
  }
}

void expect_same(const Architecture& a, const Architecture& b, const std::string& what) {
  EXPECT_EQ(a.head_dim, b.head_dim) << what;
  EXPECT_EQ(a.ffn, b.ffn) << what;
  EXPECT_EQ(a.expert_ffn, b.expert_ffn) << what;
  EXPECT_EQ(a.top_k, b.top_k) << what;
  EXPECT_EQ(a.shared_ffn, b.shared_ffn) << what;
  EXPECT_EQ(a.routing.scale, b.routing.scale) << what;
  EXPECT_EQ(a.routing.sigmoid, b.routing.sigmoid) << what;
  EXPECT_EQ(a.routing.groups, b.routing.groups) << what;
  EXPECT_EQ(a.routing.top_groups, b.routing.top_groups) << what;
  EXPECT_EQ(a.latent.q_rank, b.latent.q_rank) << what;
  EXPECT_EQ(a.latent.nope, b.latent.nope) << what;
  EXPECT_EQ(a.latent.value, b.latent.value) << what;
  EXPECT_EQ(a.normalize_top_k, b.normalize_top_k) << what;
  EXPECT_EQ(a.norm_eps, b.norm_eps) << what;
  EXPECT_EQ(a.embed_scale, b.embed_scale) << what;
  EXPECT_FLOAT_EQ(a.query_scale, b.query_scale) << what;
  EXPECT_EQ(a.attention_softcap, b.attention_softcap) << what;
  EXPECT_EQ(a.logit_softcap, b.logit_softcap) << what;
  EXPECT_EQ(a.max_context, b.max_context) << what;
  for (int i = 0; i < a.layer_count(); ++i) {
    EXPECT_EQ(a.layers[size_t(i)].window, b.layers[size_t(i)].window) << what << " " << i;
    EXPECT_EQ(a.layers[size_t(i)].moe, b.layers[size_t(i)].moe) << what << " " << i;
    const Rope& left = a.ropes[size_t(a.layers[size_t(i)].rope)];
    const Rope& right = b.ropes[size_t(b.layers[size_t(i)].rope)];
    EXPECT_FLOAT_EQ(left.magnitude, right.magnitude) << what;
    for (size_t j = 0; j < left.frequency.size(); ++j) {
      EXPECT_FLOAT_EQ(left.frequency[j], right.frequency[j]) << what << " " << j;
    }
  }
}

// Every family and rope scaling: to GGUF and back, the same numbers in the same places.
TEST_F(Convert, GgufGivesBackEveryGolden) {
  for (const Golden& golden : goldens()) {
    const Weights from = load_weights(golden.folder);
    const std::string file = path(golden.name + ".gguf");
    const std::string& family = from.architecture.family;
    if (family == "phi3" || family == "glm4" || family == "gpt_oss" || family == "llama4_text" ||
        golden.name == "deepseek-v2-yarn" || golden.name == "deepseek-v3") {  // mscales differ
      EXPECT_THROW(convert_weights(from, Storage::bf16, FileKind::gguf, file), Error);
      continue;
    }
    const Converted made = convert_weights(from, Storage::bf16, FileKind::gguf, file);
    EXPECT_GT(made.bytes, from.bytes * 0.9);
    const Weights back = load_weights(file);
    expect_same(from, back, golden.name);
    expect_same(from.architecture, back.architecture, golden.name);
    EXPECT_EQ(back.architecture.tied, from.architecture.tied);
    EXPECT_EQ(back.embed.storage, Storage::bf16);
    // And once more from the GGUF: metadata and numbers are copied.
    const std::string again = path("again.gguf");
    convert_weights(back, Storage::bf16, FileKind::gguf, again);
    expect_same(back, load_weights(again), golden.name);
    EXPECT_EQ(fs::file_size(file), fs::file_size(again)) << golden.name;
  }
}

// The golden's model with equal mscales, as DeepSeek's are released.
Weights with_equal_mscales(const char* golden, Storage storage, const std::string& path) {
  json config =
      read_json(std::string(RIDGE_SOURCE_DIR "/tests/data/goldens/") + golden + "/config.json");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(key)) config[key]["mscale"] = config[key]["mscale_all_dim"] = 0.707;
  }
  made::write(path, config.dump());
  return random_weights(path, storage, 1, 1);
}

// The logarithm of yarn's factor scales the softmax.
TEST_F(Convert, YarnOfLatentAttentionKeepsItsScale) {
  for (const char* golden : {"deepseek-v2-yarn", "deepseek-v3"}) {
    const Weights from = with_equal_mscales(golden, Storage::bf16, path("config.json"));
    const Architecture& shape = from.architecture;
    EXPECT_GT(shape.query_scale * std::sqrt(float(shape.latent.q_head())), 1.1f);
    convert_weights(from, Storage::bf16, FileKind::gguf, path("x.gguf"));
    const Weights back = load_weights(path("x.gguf"));
    expect_same(from, back, golden);
    expect_same(shape, back.architecture, golden);
  }
}

// Newer GGUFs of DeepSeek hold kv_b cut into heads, the keys' part transposed.
TEST_F(Convert, ReadsKvBInTwoStacks) {
  const Weights from = with_equal_mscales("deepseek-v3", Storage::f32, path("config.json"));
  const Architecture& shape = from.architecture;
  const LatentAttention& latent = shape.latent;
  std::vector<OutTensor> tensors;
  GgufPairs pairs = gguf_metadata(from, Storage::f32, tensors);
  pairs.integer("deepseek2.attention.key_length_mla", uint32_t(latent.q_head()));
  pairs.integer("deepseek2.attention.value_length_mla", uint32_t(latent.value));
  const auto add = [&](std::string name, std::vector<int64_t> extents, Vector values) {
    if (!tensors.empty() && tensors.back().name == name) {  // the next expert
      tensors.back().own.insert(tensors.back().own.end(), values.begin(), values.end());
    } else {
      tensors.push_back({});
      tensors.back().name = std::move(name);
      tensors.back().shape = std::move(extents);
      tensors.back().own = std::move(values);
    }
    tensors.back().bytes = tensors.back().own.size() * sizeof(float);
  };
  for (const ConstSlot& slot : slots_of(from)) {
    const std::string name = tensor_name(FileKind::gguf, shape, slot.role, slot.layer, slot.expert);
    if (slot.vector) {
      add(name, {slot.rows}, *slot.vector);
      continue;
    }
    const Vector all = made::values(*slot.matrix);
    const auto columns = size_t(slot.columns);
    if (slot.role != TensorRole::kv_b) {
      Vector rows(all.size());
      for (int64_t r = 0; r < slot.rows; ++r) {
        const bool moves = interleaves_rows(FileKind::gguf, shape, slot.role);
        const int64_t to = moves ? file_row(r, shape, slot.role) : r;
        std::copy_n(all.begin() + r * slot.columns, columns, rows.begin() + to * slot.columns);
      }
      std::vector<int64_t> extents{slot.rows, slot.columns};
      if (slot.expert >= 0) extents.insert(extents.begin(), shape.experts);
      add(name, extents, rows);
      continue;
    }
    Vector keys, values;
    for (int h = 0; h < shape.heads; ++h) {
      const float* head = &all[size_t(h) * size_t(latent.nope + latent.value) * columns];
      for (size_t c = 0; c < columns; ++c) {
        for (int r = 0; r < latent.nope; ++r) keys.push_back(head[size_t(r) * columns + c]);
      }
      const float* value = head + size_t(latent.nope) * columns;
      values.insert(values.end(), value, value + size_t(latent.value) * columns);
    }
    const std::string block = "blk." + std::to_string(slot.layer) + ".";
    add(block + "attn_k_b.weight", {shape.heads, latent.kv_rank, latent.nope}, keys);
    add(block + "attn_v_b.weight", {shape.heads, latent.value, latent.kv_rank}, values);
  }
  std::string file = gguf_head(pairs, tensors);
  for (const OutTensor& tensor : tensors) {
    file.resize(std::max<size_t>(file.size(), tensor.offset + tensor.bytes));
    std::memcpy(file.data() + tensor.offset, tensor.own.data(), tensor.bytes);
  }
  made::write(path("split.gguf"), file);
  const Weights back = load_weights(path("split.gguf"));
  expect_same(from, back, "split");
  EXPECT_EQ(back.layers[0].kv_b.storage, Storage::f32);
  // Written again with one kv_b, and with the lengths of that form.
  convert_weights(back, Storage::f32, FileKind::gguf, path("one.gguf"));
  expect_same(from, load_weights(path("one.gguf")), "one");
  const GgufHeader header = parse_gguf(read_file(path("one.gguf"), 1 << 30), "one.gguf");
  EXPECT_EQ(header.values.at("deepseek2.attention.key_length"), latent.q_head());
  EXPECT_FALSE(header.values.contains("deepseek2.attention.key_length_mla"));
}

TEST_F(Convert, EveryStorageIsWhatQuantizeMakes) {
  const Weights from = load_weights(RIDGE_SOURCE_DIR "/tests/data/goldens/llama");
  for (int i = 0; i < kStorageCount; ++i) {
    const auto storage = Storage(i);
    const std::string file = path("x.gguf");
    if (storage == Storage::fp8) {  // read, not written
      EXPECT_THROW(convert_weights(from, storage, FileKind::gguf, file), Error);
      continue;
    }
    convert_weights(from, storage, FileKind::gguf, file);
    const Weights back = load_weights(file);
    const Storage stored = storage_for(TensorRole::q, 64, storage);
    const Matrix &q = from.layers[1].q, &made = back.layers[1].q;
    ASSERT_EQ(made.storage, stored) << storage_info(storage).name;
    std::vector<float> row(64), expected(64);
    std::vector<std::byte> bytes(storage_bytes(stored, 64));
    for (int64_t r = 0; r < q.rows; ++r) {
      dequantize(q.storage, q.row(r), 64, row.data());
      quantize(stored, row.data(), 64, bytes.data());
      ASSERT_EQ(std::memcmp(bytes.data(), made.row(r), bytes.size()), 0);
    }
  }
  EXPECT_EQ(storage_for(TensorRole::q, 64, Storage::q4_k), Storage::q5_0);
  EXPECT_EQ(storage_for(TensorRole::q, 48, Storage::q4_0), Storage::bf16);
  EXPECT_EQ(storage_for(TensorRole::router, 64, Storage::q4_0), Storage::f32);
}

TEST_F(Convert, FoldersOfSafetensors) {
  for (const char* name : {"gemma3", "qwen3-moe", "qwen2"}) {
    const Weights from = load_weights(std::string(RIDGE_SOURCE_DIR "/tests/data/goldens/") + name);
    convert_weights(from, Storage::f32, FileKind::safetensors, path(name));
    const Weights back = load_weights(path(name));
    EXPECT_EQ(back.embed.storage, Storage::f32);
    for (size_t i = 0; i < from.layers.size(); ++i) {
      EXPECT_EQ(made::values(from.layers[i].q), made::values(back.layers[i].q));
      for (size_t j = 0; j < from.layers[i].attn_norm.size(); ++j) {
        EXPECT_NEAR(from.layers[i].attn_norm[j], back.layers[i].attn_norm[j], 1e-7);
      }
    }
    EXPECT_THROW(convert_weights(from, Storage::f32, FileKind::safetensors, path(name)), Error);
  }
  const Weights tiny = load_weights("ridge-1m");
  EXPECT_THROW(convert_weights(tiny, Storage::f32, FileKind::safetensors, path("x")), Error);
  const Weights llama = load_weights(RIDGE_SOURCE_DIR "/tests/data/goldens/llama");
  EXPECT_THROW(convert_weights(llama, Storage::q8_0, FileKind::safetensors, path("x")), Error);
  EXPECT_FALSE(fs::exists(path("x")));
}

TEST_F(Convert, MetadataIsAsLlamaCppReadsIt) {
  const Weights from = load_weights(RIDGE_SOURCE_DIR "/tests/data/goldens/llama-llama3");
  const std::string file = path("x.gguf");
  convert_weights(from, Storage::q8_0, FileKind::gguf, file);
  const MappedFile mapped(file);
  const GgufHeader header = parse_gguf(mapped.bytes(), file);
  EXPECT_EQ(header.values.at("general.architecture"), "llama");
  EXPECT_EQ(header.values.at("general.file_type"), 7);
  EXPECT_EQ(header.values.at("llama.rope.freq_base"), 10000.0);
  EXPECT_EQ(header.values.at("llama.attention.head_count_kv"), 2);
  EXPECT_EQ(header.tensors.at("rope_freqs.weight").shape, (std::vector<int64_t>{8}));
  EXPECT_EQ(header.tensors.at("blk.0.attn_k.weight").format.name, "q8_0");
  EXPECT_EQ(header.tensors.at("blk.0.attn_norm.weight").format.name, "fp32");
  for (const auto& [name, tensor] : header.tensors) EXPECT_EQ(tensor.offset % 32, 0u) << name;
}

TEST_F(Convert, TheVocabularyTravels) {
  const Weights from = load_weights("ridge-7m");
  ASSERT_NE(from.tokenizer, nullptr);
  convert_weights(from, Storage::q4_0, FileKind::gguf, path("x.gguf"));
  const Weights back = load_weights(path("x.gguf"));
  ASSERT_NE(back.tokenizer, nullptr);
  const char* text = "The kernel reads 4096 bytes; it's done.\n";
  EXPECT_EQ(back.tokenizer->encode(text), from.tokenizer->encode(text));
  EXPECT_EQ(back.architecture.ends, from.architecture.ends);
}

// A folder with a small byte-level tokenizer.json.
TEST_F(Convert, TokenizerJsonBecomesMetadata) {
  json vocab = json::object();
  const std::vector<std::string> pieces = {"<|end|>", "H",  "e",    "l",     "o",
                                           "\u0120",  "w",  "r",    "d",     ",",
                                           "He",      "ll", "Hell", "Hello", "\u0120w"};
  for (size_t i = 0; i < pieces.size(); ++i) vocab[pieces[i]] = i;
  int next = int(pieces.size());
  // The rest of GPT-2's alphabet, so that any byte has a piece.
  for (int b = 0, extra = 0; b < 256; ++b) {
    const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const int code = shown ? b : 256 + extra++;
    std::string piece;
    if (code < 128) {
      piece = char(code);
    } else {
      piece = {char(0xc0 | code >> 6), char(0x80 | (code & 63))};
    }
    if (!vocab.contains(piece)) vocab[piece] = next++;
  }
  const json tokenizer = {
      {"added_tokens", {{{"id", 0}, {"content", "<|end|>"}, {"special", true}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocab},
        {"merges", {"H e", "l l", "He ll", "Hell o", "\u0120 w"}}}}};
  json config = made::llama_config();
  config["vocab_size"] = next + 3;
  config["eos_token_id"] = 0;
  made::write(folder_ / "config.json", config.dump());
  made::write(folder_ / "tokenizer.json", tokenizer.dump());
  made::write(folder_ / "tokenizer_config.json",
              R"({"bos_token":"<|end|>","eos_token":"<|end|>","add_bos_token":true})");
  made::write(folder_ / "model.safetensors", made::safetensors(made::tensors_of(config), "BF16"));
  const Weights from = load_weights(folder_.string());
  convert_weights(from, Storage::q8_0, FileKind::gguf, path("x.gguf"));
  const Weights back = load_weights(path("x.gguf"));
  ASSERT_NE(back.tokenizer, nullptr);
  EXPECT_EQ(back.tokenizer->encode("Hello, world"), from.tokenizer->encode("Hello, world"));
  EXPECT_EQ(back.tokenizer->bos, 0);
  EXPECT_TRUE(back.tokenizer->adds_bos);
  EXPECT_EQ(back.architecture.ends, (std::vector<int>{0}));
  const MappedFile mapped(path("x.gguf"));
  EXPECT_EQ(parse_gguf(mapped.bytes(), "x").values.at("tokenizer.ggml.pre"), "gpt-2");
}

TEST_F(Convert, RandomModelsBecomeFiles) {
  made::write(folder_ / "config.json", made::configs()[6].dump());
  const Weights from = random_weights(path("config.json"), Storage::q8_0, 3, 1);
  convert_weights(from, Storage::q8_0, FileKind::gguf, path("x.gguf"));
  expect_same(from, load_weights(path("x.gguf")), "mixtral");
  EXPECT_THROW(convert_weights(from, Storage::q8_0, FileKind::gguf, path("none/x.gguf")), Error);
}

}  // namespace
}  // namespace ridge
