// GGUF and safetensors headers: what they say, and what is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "fuzz/sample_files.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/support.h"

namespace ridge {
namespace {

using sample::Gguf;
using sample::safetensors;
using sample::tiny_llama_gguf;
using test::failure;
using test::Folder;

std::string gguf_failure(const std::string& bytes) {
  return failure([&] { model_from_gguf_header(parse_gguf(bytes, "f.gguf"), "f.gguf"); });
}

TEST(GgufFile, GivesDimensionsFormatsAndExactBytes) {
  Folder folder;
  write_file(folder / "tiny.gguf", tiny_llama_gguf().bytes());
  Model model = find_model(folder / "tiny.gguf");
  EXPECT_EQ(model.title, "Tiny");
  EXPECT_EQ(model.hidden, 64);
  EXPECT_EQ(model.vocab, 3);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.groups[0].layer.mixer.kv_heads, 2);
  double attention = (2 * 64 * 64 + 2 * 64 * 32) / 32.0 * 34;
  double mlp = 3 * 64 * 96 / 32.0 * 18;
  EXPECT_EQ(weight_bytes(model), attention + mlp + 64 * 3 * 2 + 3 * 64 * 4);
  for (const Linear& linear : model.groups[0].layer.linears) {
    bool in_mlp = linear.stage == Stage::ffn_in || linear.stage == Stage::ffn_out;
    EXPECT_EQ(linear.format.name, in_mlp ? "q4_0" : "q8_0") << linear.name;
  }
}

TEST(GgufFile, PiecesAddUp) {
  Folder folder;
  Gguf first = tiny_llama_gguf();
  first.number("split.count", 2);
  write_file(folder / "m-00001-of-00002.gguf", first.bytes());
  EXPECT_NE(failure([&] { find_model(folder / "m-00001-of-00002.gguf"); }).find("00002-of"),
            std::string::npos);
  write_file(folder / "m-00002-of-00002.gguf", Gguf().tensor("extra", {64}, 0, 256).bytes());
  double alone = double(parse_gguf(first.bytes(), "first").tensor_bytes);
  EXPECT_EQ(weight_bytes(find_model(folder / "m-00001-of-00002.gguf")), alone + 256);
  write_file(folder / "odd.gguf", first.bytes());
  EXPECT_NE(failure([&] { find_model(folder / "odd.gguf"); }).find("00001-of-00002"),
            std::string::npos);
}

TEST(GgufFile, EveryTruncationIsRefused) {
  std::string bytes = tiny_llama_gguf().bytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(gguf_failure(bytes.substr(0, length)), "") << length;
  }
}

TEST(GgufFile, HostileCountsAndLengthsAreRefused) {
  std::string bytes = tiny_llama_gguf().bytes();
  auto patched = [&bytes](size_t at, uint64_t value) {
    std::string copy = bytes;
    std::memcpy(copy.data() + at, &value, sizeof(value));
    return copy;
  };
  EXPECT_NE(gguf_failure(patched(8, ~uint64_t{0})), "");   // tensors
  EXPECT_NE(gguf_failure(patched(16, ~uint64_t{0})), "");  // keys
  EXPECT_NE(gguf_failure(patched(24, ~uint64_t{0})), "");  // the first key's length
  EXPECT_NE(gguf_failure(patched(24, uint64_t{1} << 40)), "");
  EXPECT_NE(gguf_failure("GGUF"), "");
  EXPECT_NE(gguf_failure("nothing of the kind"), "");
  EXPECT_NE(gguf_failure(Gguf(1).bytes()), "");
  EXPECT_NE(gguf_failure(Gguf(4).bytes()), "");
}

TEST(GgufFile, ArraysNestedDeepAreRefused) {
  // An array of arrays of arrays ...
  std::string bytes = Gguf().numbers("k", {}).bytes();
  size_t type = bytes.size() - 12;
  std::string nested = bytes.substr(0, type);
  uint32_t array = 9;
  uint64_t one = 1;
  for (int depth = 0; depth < 1000; ++depth) {
    nested.append(reinterpret_cast<const char*>(&array), 4);
    nested.append(reinterpret_cast<const char*>(&one), 8);
  }
  EXPECT_NE(gguf_failure(nested).find("deep"), std::string::npos);
}

TEST(GgufFile, DataOutsideTheFileIsRefused) {
  Gguf file = tiny_llama_gguf();
  std::string bytes = file.bytes();
  bytes.resize(bytes.size() - 64);
  EXPECT_NE(gguf_failure(bytes).find("tensor"), std::string::npos);
}

TEST(GgufFile, UnknownTypesAndArchitecturesAreNamed) {
  EXPECT_NE(gguf_failure(Gguf().tensor("t", {32}, 99, 32).bytes()).find("99"), std::string::npos);
  EXPECT_NE(gguf_failure(Gguf().text("general.architecture", "rwkv7").bytes()).find("rwkv7"),
            std::string::npos);
  EXPECT_NE(gguf_failure(Gguf().text("general.architecture", "llama").bytes()), "");
  EXPECT_NE(gguf_failure(Gguf().tensor("t", {33}, 8, 34).bytes()).find("blocks"),
            std::string::npos);
}

// Metadata may hold any number under any key.
TEST(GgufFile, SizesThatAreRealNumbersAreRefused) {
  const auto fault_of = [](double hidden, double heads) {
    return gguf_failure(Gguf()
                            .text("general.architecture", "llama")
                            .number("llama.block_count", 1)
                            .real("llama.embedding_length", hidden)
                            .real("llama.attention.head_count", heads)
                            .number("llama.feed_forward_length", 64)
                            .number("llama.vocab_size", 100)
                            .bytes());
  };
  for (const double hidden : {1.1418e46, -1e300, 64.5, 1e19}) {
    EXPECT_NE(fault_of(hidden, 1).find("hidden_size"), std::string::npos) << hidden;
  }
  for (const double heads : {0x1p-400, 0x1p-20, -4.0, 0.0, 1e300}) {
    EXPECT_NE(fault_of(64, heads).find("num_attention_heads"), std::string::npos) << heads;
  }
}

TEST(GgufFile, VocabularyFilesOfTheSharedFolder) {
  std::filesystem::path folder = RIDGE_SOURCE_DIR "/../shared/tokenizers";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << folder << " is not there: real GGUF files are tested only beside it";
  }
  Model llama = find_model((folder / "ggml-vocab-llama-spm.gguf").string());
  EXPECT_EQ(parameters(llama), parameters(find_model("llama-2-7b")));
  EXPECT_EQ(parameters(find_model((folder / "ggml-vocab-gpt-2.gguf").string())), 124439808);
}

std::string header_failure(const std::string& header, size_t data) {
  return failure([&] { parse_safetensors(safetensors(header, data), "f.safetensors"); });
}

TEST(SafetensorsFile, GivesSizes) {
  auto tensors = parse_safetensors(sample::tiny_safetensors(), "f");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].bytes + tensors[1].bytes, 80u);
}

TEST(SafetensorsFile, HostileHeadersAreRefused) {
  EXPECT_NE(failure([] { parse_safetensors("", "f"); }), "");
  EXPECT_NE(failure([] { parse_safetensors(std::string(8, '\xff'), "f"); }), "");
  std::string huge(16, '\0');
  huge[7] = 1;  // a header of 2^56 bytes
  EXPECT_NE(failure([&] { parse_safetensors(huge, "f"); }), "");
  EXPECT_NE(header_failure("[]", 0), "");
  EXPECT_NE(header_failure("{\"a\":3}", 0), "");
  EXPECT_NE(header_failure(R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})", 7), "");
  EXPECT_NE(header_failure(R"({"a":{"dtype":"BF16","shape":[5],"data_offsets":[0,8]}})", 8), "");
  EXPECT_NE(header_failure(R"({"a":{"dtype":"Q9","shape":[4],"data_offsets":[0,8]}})", 8), "");
  EXPECT_NE(header_failure(R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[8,0]}})", 8), "");
  EXPECT_NE(header_failure(R"({"a":{"dtype":"BF16","shape":[-4],"data_offsets":[0,8]}})", 8), "");
  EXPECT_NE(header_failure(R"({"a":{"dtype":"BF16","shape":[4294967296,4294967296],
                               "data_offsets":[0,8]}})",
                           8),
            "");
  EXPECT_NE(header_failure(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},
                               "b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
                           12),
            "");
}

TEST(SafetensorsFolder, GivesExactBytes) {
  Folder folder;
  nlohmann::json config = test::small_llama();
  double count = parameters(test::read(config));
  write_file(folder / "config.json", config.dump());
  // One tensor stands for all of them.
  nlohmann::json header = {{"w",
                            {{"dtype", "F32"},
                             {"shape", {uint64_t(count)}},
                             {"data_offsets", {0, uint64_t(4 * count)}}}}};
  write_file(folder / "model.safetensors", safetensors(header.dump(), size_t(4 * count)));
  EXPECT_EQ(weight_bytes(find_model(folder.path())), 4 * count);
  EXPECT_EQ(weight_bytes(find_model(folder / "model.safetensors")), 4 * count);
}

TEST(SafetensorsFolder, NeedsAConfig) {
  Folder folder;
  write_file(folder / "model.safetensors", sample::tiny_safetensors());
  EXPECT_NE(failure([&] { find_model(folder / "model.safetensors"); }).find("config.json"),
            std::string::npos);
  EXPECT_NE(failure([&] { find_model(folder.path()); }).find("config.json"), std::string::npos);
}

TEST(SafetensorsFolder, AnIndexMayNotLeaveTheFolder) {
  Folder folder;
  write_file(folder / "config.json", test::small_llama().dump());
  write_file(folder / "model.safetensors", sample::tiny_safetensors());
  for (const char* name : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    nlohmann::json index = {{"weight_map", {{"w", name}}}};
    write_file(folder / "model.safetensors.index.json", index.dump());
    EXPECT_NE(failure([&] { find_model(folder.path()); }), "") << name;
  }
}

}  // namespace
}  // namespace ridge
