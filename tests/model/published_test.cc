// Our counts against what publishers state.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "model/builtin.h"
#include "model/read.h"

namespace ridge {
namespace {

struct Stated {
  const char* name;
  double total;                    // billions, with the publisher's digits
  double active;                   // 0: dense
  double total_unit, active_unit;  // of the last digit stated
};

// Model cards, papers and the safetensors totals of Hugging Face.
constexpr Stated kStated[] = {
    {"llama-2-7b", 6.738, 0, 0.001, 0},
    {"llama-2-70b", 68.98, 0, 0.01, 0},
    {"llama-3-8b", 8.03, 0, 0.01, 0},
    {"llama-3.1-70b", 70.6, 0, 0.1, 0},
    {"llama-3.1-405b", 405.85, 0, 0.01, 0},
    {"llama-3.2-3b", 3.21, 0, 0.01, 0},
    {"llama-4-scout", 109, 17, 1, 1},
    {"llama-4-maverick", 400, 17, 1, 1},
    {"tinyllama-1.1b", 1.1, 0, 0.01, 0},
    {"mistral-7b", 7.24, 0, 0.01, 0},
    {"mistral-nemo-12b", 12.2, 0, 0.1, 0},
    {"mistral-small-24b", 23.6, 0, 0.1, 0},
    {"mixtral-8x7b", 46.7, 12.9, 0.1, 0.1},
    {"mixtral-8x22b", 141, 39, 1, 1},
    {"qwen2.5-0.5b", 0.49, 0, 0.01, 0},
    {"qwen2.5-72b", 72.7, 0, 0.1, 0},
    {"qwen3-8b", 8.2, 0, 0.1, 0},
    {"qwen3-32b", 32.8, 0, 0.1, 0},
    {"qwen3-30b-a3b", 30.5, 3.3, 0.1, 0.1},
    {"qwen3-235b-a22b", 235, 22, 1, 1},
    {"qwen3.5-35b-a3b", 35, 3, 1, 1},
    {"deepseek-v2", 236, 21, 1, 1},
    {"deepseek-v2-lite", 15.7, 2.4, 0.1, 0.1},
    {"deepseek-v3", 671, 37, 1, 1},
    {"kimi-k2", 1026, 32, 1, 1},
    {"gpt-oss-20b", 20.91, 3.61, 0.01, 0.01},
    {"gpt-oss-120b", 116.83, 5.13, 0.01, 0.01},
    {"gemma-2-9b", 9.24, 0, 0.01, 0},
    {"gemma-3-4b", 4.3, 0, 0.1, 0},
    {"gemma-3-27b", 27.4, 0, 0.1, 0},
    {"gemma-4-26b-a4b", 25.2, 3.8, 0.1, 0.1},
    {"phi-3-mini", 3.82, 0, 0.01, 0},
    {"phi-4", 14.7, 0, 0.1, 0},
    {"glm-4-9b", 9.4, 0, 0.1, 0},
    {"glm-4.5", 355, 0, 1, 0},
    {"minimax-m2", 230, 10, 1, 1},
    {"nemotron-3-nano-30b-a3b", 31.6, 3.6, 0.1, 0.1},
    {"dbrx", 132, 36, 1, 1},
    {"jamba-v0.1", 52, 12, 1, 1},
    {"gpt-2", 0.124, 0, 0.001, 0},
};

class Published : public testing::TestWithParam<Stated> {};

// One percent beyond the publisher's own rounding.
TEST_P(Published, WithinOnePercent) {
  const Stated& stated = GetParam();
  Model model = find_model(stated.name);
  double total = parameters(model) / 1e9, active = active_parameters(model) / 1e9;
  EXPECT_NEAR(total, stated.total, 0.01 * stated.total + stated.total_unit / 2);
  if (stated.active > 0) {
    EXPECT_NEAR(active, stated.active, 0.01 * stated.active + stated.active_unit / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Published, testing::ValuesIn(kStated), [](const auto& test) {
  std::string name = test.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(PublishedCounts, EveryBuiltInModelIsWithinOnePercentOfItsOwnFigure) {
  for (const std::string& name : builtin_model_names()) {
    auto published = published_counts(name);
    ASSERT_TRUE(published) << name;
    EXPECT_NEAR(parameters(find_model(name)) / published->parameters, 1, 0.01) << name;
    EXPECT_FALSE(published->source.empty()) << name;
  }
}

// Real configs, where the shared folder lies beside the repository.
TEST(SharedConfigs, AreAllRead) {
  std::filesystem::path folder = RIDGE_SOURCE_DIR "/../shared/configs";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << folder << " is not there: real configs are tested only beside it";
  }
  struct Expected {
    const char* file;
    double total, active;  // billions
  };
  constexpr Expected kExpected[] = {
      {"MiniMaxAI--MiniMax-M2.5.json", 228.7, 10.4},
      {"Qwen--Qwen3-235B-A22B.json", 235.1, 22.2},
      {"Qwen--Qwen3-30B-A3B.json", 30.5, 3.35},
      {"Qwen--Qwen3-32B.json", 32.8, 32.8},
      {"Qwen--Qwen3-8B.json", 8.19, 8.19},
      {"Qwen--Qwen3.5-35B-A3B.json", 35.1, 3.46},
      {"deepseek-ai--DeepSeek-V3.2.json", 671.9, 37.5},
      {"deepseek-ai--DeepSeek-V3.json", 671.0, 36.6},
      {"google--gemma-4-26B-A4B.json", 25.2, 3.82},
      {"meta-llama--Llama-4-Scout-17B-16E-Instruct.json", 107.8, 17.2},
      {"meta-llama--Meta-Llama-3.1-405B.json", 405.9, 405.9},
      {"meta-llama--Meta-Llama-3.1-70B.json", 70.6, 70.6},
      {"meta-llama--Meta-Llama-3.1-8B.json", 8.03, 8.03},
      {"mistralai--Mixtral-8x7B-v0.1.json", 46.7, 12.9},
      {"moonshotai--Kimi-K2-Instruct.json", 1026.4, 31.7},
      {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json", 31.6, 3.58},
      {"openai--gpt-oss-120b.json", 116.8, 5.13},
      {"openai--gpt-oss-20b.json", 20.9, 3.61},
  };
  for (const Expected& expected : kExpected) {
    Model model = find_model((folder / expected.file).string());
    EXPECT_NEAR(parameters(model) / 1e9, expected.total, 0.005 * expected.total) << expected.file;
    EXPECT_NEAR(active_parameters(model) / 1e9, expected.active, 0.005 * expected.active)
        << expected.file;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_NO_THROW(find_model(entry.path().string())) << entry.path();
  }
}

}  // namespace
}  // namespace ridge
