// The CUDA runner against the CPU's, which is checked against the specification. Skipped where no
// device is (ctest label gpu).
#include "engine/runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "engine/device_format.h"

namespace ridge {
namespace {

struct Family {
  const char* name;
  const char* config;
};

const Family kFamilies[] = {
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
};

const char* const kExperts = R"({"model_type":"mixtral","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,"vocab_size":300,
      "num_local_experts":4,"num_experts_per_tok":2,"max_position_embeddings":512})";

class Config {
 public:
  explicit Config(const char* text) {
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

// Null, with the reason, where this cannot run.
std::unique_ptr<Runner> cuda_runner(const Config& config, std::string& why,
                                    RunnerOptions options = {}) {
  options.kv = KvStorage::bf16;
  try {
    return make_cuda_runner(config.weights(), options);
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

std::vector<Token> prompt(int count, int seed, int vocab) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(Token((i * 37 + seed * 101) % vocab));
  return tokens;
}

// Logits of every token, given in chunks.
std::vector<float> logits(Runner& runner, std::span<const Token> tokens, size_t chunk) {
  std::vector<float> all;
  CachedSequence sequence(runner.pool());
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const auto part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
    const int past = sequence.length();
    sequence.extend(int(part.size()));
    const Slice slice{part, past, sequence.pages(), int(part.size())};
    const std::span<const float> found = runner.step({&slice, 1});
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

TEST(CudaRunner, SaysWhyItCannotRun) {
  const Config experts(kExperts);
  std::string why;
  // Experts are refused with a device, everything without one: one line in both cases.
  EXPECT_EQ(cuda_runner(experts, why), nullptr);
  EXPECT_FALSE(why.empty());
  EXPECT_EQ(why.find('\n'), std::string::npos);
}

double relative_error(const std::vector<float>& found, const std::vector<float>& wanted) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(double(found[i]) - wanted[i], 2);
    size += std::pow(double(wanted[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(GpuRunner, GivesTheCpusLogits) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const Config config(family.config);
    std::string why;
    const auto cuda = cuda_runner(config, why);
    if (!cuda) GTEST_SKIP() << why;
    RunnerOptions options;
    options.kv = KvStorage::bf16;
    options.threads = 2;
    const auto cpu = make_cpu_runner(config.weights(), options);
    const int vocab = cpu->weights().architecture.vocab;
    const std::vector<Token> tokens = prompt(90, 3, vocab);
    const std::vector<float> found = logits(*cuda, tokens, 90), wanted = logits(*cpu, tokens, 90);
    ASSERT_EQ(found.size(), wanted.size());
    // Two layers: 9 products whose inputs are rounded to bf16, 2^-10 each on average, and adding
    // up like a random walk; the CPU's own roundings (cache, weights) are shared. Factor 4.
    EXPECT_LT(relative_error(found, wanted), 4 * std::sqrt(9.0 + 4) / 1024);
  }
}

TEST(GpuRunner, KeepsWeightsAsAskedFor) {
  struct Case {
    const char* name;
    // Of a weight, root mean square: a step of 2^-3 of the value over sqrt(12), averaged over a
    // binade 0.7; a 15th of the range of 64 normal values (5 deviations) over sqrt(12).
    double rounding;
  };
  const Config config(kFamilies[0].config);
  std::string why;
  const auto exact = cuda_runner(config, why);
  if (!exact) GTEST_SKIP() << why;
  const std::vector<Token> tokens = prompt(40, 3, exact->weights().architecture.vocab);
  const std::vector<float> wanted = logits(*exact, tokens, 40);
  for (const Case& each : {Case{"fp8", 0.7 * 0.125 / 3.46}, Case{"int4", 5.0 / 15 / 3.46}}) {
    SCOPED_TRACE(each.name);
    RunnerOptions options;
    options.device_format = device_format_from_name(each.name);
    const auto runner = cuda_runner(config, why, options);
    ASSERT_TRUE(runner) << why;
    EXPECT_EQ(runner->plan().weights->name, each.name);
    EXPECT_NE(runner->device().find(each.name), std::string::npos);
    EXPECT_LT(runner->repacked_bytes(), 0.6 * exact->repacked_bytes());
    const double error = relative_error(logits(*runner, tokens, 40), wanted);
    // Nine matrices one after the other: their errors add up like a random walk. Factor 2.
    EXPECT_GT(error, each.rounding / 2);
    EXPECT_LT(error, each.rounding * 3 * 2);
  }
}

TEST(GpuRunner, DependsOnTheSequenceAlone) {
  const Config config(kFamilies[0].config);
  std::string why;
  RunnerOptions options;
  options.page_tokens = 32;
  const auto runner = cuda_runner(config, why, options);
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  const std::vector<Token> tokens = prompt(150, 1, vocab);
  const std::vector<float> whole = logits(*runner, tokens, 150);
  EXPECT_EQ(logits(*runner, tokens, 150), whole) << "the same again";
  EXPECT_EQ(logits(*runner, tokens, 1), whole) << "token by token";
  EXPECT_EQ(logits(*runner, tokens, 23), whole) << "in chunks";

  // Beside other sequences, of which one prefills.
  const std::vector<Token> others[] = {prompt(40, 5, vocab), prompt(7, 9, vocab)};
  CachedSequence mine(runner->pool()), first(runner->pool()), second(runner->pool());
  std::vector<float> all;
  for (size_t at = 0; at < tokens.size(); at += 3) {
    const auto part = std::span(tokens).subspan(at, std::min<size_t>(3, tokens.size() - at));
    std::vector<Slice> batch;
    first.cut(0), second.cut(0);
    first.extend(40), second.extend(7);
    const int past = mine.length();
    mine.extend(int(part.size()));
    batch.push_back({others[0], 0, first.pages(), 1});
    batch.push_back({part, past, mine.pages(), int(part.size())});
    batch.push_back({others[1], 0, second.pages(), 0});
    const std::span<const float> found = runner->step(batch);
    ASSERT_EQ(found.size(), (1 + part.size()) * size_t(vocab));
    all.insert(all.end(), found.begin() + vocab, found.end());
  }
  EXPECT_EQ(all, whole) << "in a batch";
}

}  // namespace
}  // namespace ridge
