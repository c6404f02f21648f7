// Names of built-in models, and paths.
#include "model/builtin.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "model/support.h"

namespace ridge {
namespace {

using test::failure;

TEST(Names, AreForgiven) {
  const char* const kNames[][2] = {
      {"llama-3-70b", "llama-3-70b"},
      {"LLAMA_3_70B", "llama-3-70b"},
      {"Llama-3-70B-Instruct", "llama-3-70b"},
      {"meta-llama/Meta-Llama-3-70B", "llama-3-70b"},
      {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"},
      {"llama-3-1-8b", "llama-3.1-8b"},
      {"meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"},
      {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
      {"google/gemma-3-27b-it", "gemma-3-27b"},
      {"Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"},
      {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
      {"openai/gpt-oss-120b", "gpt-oss-120b"},
      {"gpt2", "gpt-2"},
      {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"},
      {"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"},
  };
  for (const auto& [written, meant] : kNames) EXPECT_EQ(find_model(written).name, meant);
}

// What a launch command loads is the model that was planned.
TEST(Names, RepositoriesNameTheirEntry) {
  int known = 0;
  for (const std::string& name : builtin_model_names()) {
    const std::string repository = model_repository(name);
    if (repository.empty()) continue;
    ++known;
    EXPECT_EQ(std::count(repository.begin(), repository.end(), '/'), 1) << repository;
    EXPECT_EQ(find_model(repository).name, name) << repository;
  }
  EXPECT_GT(known, 70);
  EXPECT_EQ(model_repository("llama-3-8b"), "meta-llama/Meta-Llama-3-8B-Instruct");
  EXPECT_EQ(model_repository("Qwen/Qwen3-8B-FP8"), "");
}

double bits_per_weight(const char* name) {
  const Model model = find_model(name);
  return 8 * weight_bytes(model) / parameters(model);
}

TEST(Names, QuantizedReleasesAreTheModelWithTheirRecipe) {
  EXPECT_EQ(find_model("Qwen/Qwen3-235B-A22B-FP8").name, "qwen3-235b-a22b-fp8");
  EXPECT_NEAR(bits_per_weight("Qwen/Qwen3-235B-A22B-FP8"), 8, 0.2);
  EXPECT_NEAR(bits_per_weight("nvidia/Llama-3.1-8B-Instruct-FP8"), 9, 1);  // embeddings in bf16
  EXPECT_EQ(find_model("nvidia/Llama-3.1-8B-Instruct-FP8").kv_format.name, "fp8");
  for (const char* name : {"nvidia/DeepSeek-R1-NVFP4", "nvidia/DeepSeek-V3.1-NVFP4"}) {
    EXPECT_EQ(find_model(name).name, "deepseek-v3-nvfp4") << name;
    EXPECT_NEAR(bits_per_weight(name), 4.8, 0.2) << name;  // attention in 16 bits
  }
  EXPECT_NEAR(bits_per_weight("moonshotai/Kimi-K2.5"), 4.63, 0.05);  // a checkpoint of 595 GB
  EXPECT_THROW(find_model("no-such-model-fp8"), Error);
}

TEST(Names, UnknownOnesSuggestTheNearest) {
  std::string message = failure([] { find_model("lama-3-70b"); });
  EXPECT_NE(message.find("llama-3-70b"), std::string::npos) << message;
  EXPECT_NE(failure([] { find_model(""); }), "");
  EXPECT_NE(failure([] { find_model("/"); }), "");
  EXPECT_NE(failure([] { find_model("no/such/config.json"); }).find("no such file"),
            std::string::npos);
}

TEST(Names, EveryFileIsWellFormed) {
  auto names = builtin_model_names();
  EXPECT_GE(names.size(), 36u);
  for (const std::string& name : names) {
    Model model = find_model(name);
    EXPECT_EQ(model.name, name);
    EXPECT_EQ(model.source, "built in");
    EXPECT_FALSE(model.title.empty());
    EXPECT_GT(parameters(model), 0) << name;
  }
}

TEST(Paths, AFolderWithAConfigIsAModel) {
  test::Folder folder;
  write_file(folder / "config.json", test::small_llama().dump());
  Model model = find_model(folder.path());
  EXPECT_EQ(model.hidden, 64);
  EXPECT_EQ(model.source, folder.path());
  EXPECT_EQ(find_model(folder / "config.json").name, model.name);
}

TEST(Paths, BrokenFilesAreNamed) {
  test::Folder folder;
  write_file(folder / "config.json", "{\"model_type\": ");
  std::string message = failure([&] { find_model(folder / "config.json"); });
  EXPECT_NE(message.find("config.json"), std::string::npos) << message;
  write_file(folder / "empty.gguf", "");
  EXPECT_NE(failure([&] { find_model(folder / "empty.gguf"); }).find("empty.gguf"),
            std::string::npos);
  std::filesystem::remove(folder / "config.json");
  EXPECT_NE(failure([&] { find_model(folder.path()); }).find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace ridge
