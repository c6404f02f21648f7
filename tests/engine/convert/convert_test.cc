// What convert writes is what load reads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
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

TEST_F(Convert, EveryStorageIsWhatQuantizeMakes) {
  const Weights from = load_weights(RIDGE_SOURCE_DIR "/tests/data/goldens/llama");
  for (int i = 0; i < kStorageCount; ++i) {
    const auto storage = Storage(i);
    const std::string file = path("x.gguf");
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
