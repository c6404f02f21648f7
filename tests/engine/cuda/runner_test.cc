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
#include "engine/cuda/layout/device_format.h"
#include "engine/cuda/on_device.h"

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
    {"gemma2", R"({"model_type":"gemma2","hidden_size":256,"num_hidden_layers":2,"head_dim":256,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "sliding_window":24,"query_pre_attn_scalar":256,"max_position_embeddings":512})"},
    {"gemma3", R"({"model_type":"gemma3_text","hidden_size":256,"num_hidden_layers":3,
      "head_dim":128,"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":528,
      "vocab_size":300,"sliding_window":24,"sliding_window_pattern":2,"query_pre_attn_scalar":128,
      "max_position_embeddings":512})"},
    {"mixtral", R"({"model_type":"mixtral","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,"vocab_size":300,
      "num_local_experts":4,"num_experts_per_tok":2,"max_position_embeddings":512})"},
    {"qwen3_moe", R"({"model_type":"qwen3_moe","hidden_size":256,"num_hidden_layers":3,
      "head_dim":64,"num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":512,
      "moe_intermediate_size":144,"num_experts":40,"num_experts_per_tok":4,"mlp_only_layers":[1],
      "norm_topk_prob":true,"vocab_size":300,"max_position_embeddings":512})"},
};
const Family& family_of(std::string_view name) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                       [&](const Family& family) { return family.name == name; });
}

const char* const kRefused = R"({"model_type":"llama","hidden_size":480,"num_hidden_layers":2,
      "head_dim":64,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,
      "vocab_size":300,"max_position_embeddings":512})";

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

// Null, with the reason, where there is no device.
std::unique_ptr<Runner> cuda_runner(const Config& config, std::string& why,
                                    RunnerOptions options = {}, KvStorage kv = KvStorage::bf16) {
  options.kv = kv;
  return on_device(config.weights(), options, why);
}

std::unique_ptr<Runner> cpu_runner(const Config& config, KvStorage kv = KvStorage::bf16) {
  RunnerOptions options;
  options.kv = kv;
  options.threads = 2;
  return make_cpu_runner(config.weights(), options);
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

// Those of the last token alone: the pieces before it are asked for none.
std::vector<float> last_logits(Runner& runner, std::span<const Token> tokens, size_t chunk) {
  CachedSequence sequence(runner.pool());
  std::span<const float> found;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const auto part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
    const int past = sequence.length();
    sequence.extend(int(part.size()));
    const Slice slice{part, past, sequence.pages(), at + chunk < tokens.size() ? 0 : 1};
    found = runner.step({&slice, 1});
  }
  return {found.begin(), found.end()};
}

// Forty sequences as a server has them: ten prompts at once; then a token of each of the ten beside
// thirty more prompts, one in two pieces; then a token of each, twice. Logits of all that were
// asked for: some of none, some of several tokens.
std::vector<float> served(Runner& runner) {
  constexpr int kFirst[] = {1, 40, 5, 77, 16, 3, 33, 20, 2, 64};
  const int vocab = runner.weights().architecture.vocab;
  std::vector<std::unique_ptr<CachedSequence>> sequences;
  std::vector<std::vector<Token>> tokens;
  for (int i = 0; i < 40; ++i) {
    sequences.push_back(std::make_unique<CachedSequence>(runner.pool()));
    tokens.push_back(prompt(100, i, vocab));
  }
  std::vector<float> all;
  std::vector<Slice> batch;
  const auto add = [&](int i, int count, int wanted) {
    CachedSequence& sequence = *sequences[size_t(i)];
    const int past = sequence.length();
    sequence.extend(count);
    const auto part = std::span(tokens[size_t(i)]).subspan(size_t(past), size_t(count));
    batch.push_back({part, past, sequence.pages(), wanted});
  };
  const auto step = [&] {
    const std::span<const float> found = runner.step(batch);
    all.insert(all.end(), found.begin(), found.end());
    batch.clear();
  };
  for (int i = 0; i < 10; ++i) add(i, kFirst[i], i == 3 ? 5 : 1);
  step();
  for (int i = 0; i < 40; ++i) add(i, i < 10 ? 1 : 1 + i % 9, i == 30 ? 0 : 1);
  step();
  for (int i = 0; i < 40; ++i) add(i, i == 30 ? 19 : 1, 1);
  step();
  for (int i = 0; i < 40; ++i) add(i, 1, 1);
  step();
  return all;
}

double relative_error(std::span<const float> found, std::span<const float> wanted) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(double(found[i]) - wanted[i], 2);
    size += std::pow(double(wanted[i]), 2);
  }
  return std::sqrt(difference / size);
}

// Of all positions together; with experts of half of them: a router's near tie may fall to another
// expert, which changes that position and what attends to it altogether (golden_test.cc).
double error_of(const Architecture& a, const std::vector<float>& found,
                const std::vector<float>& wanted) {
  if (a.experts == 0) return relative_error(found, wanted);
  std::vector<double> errors;
  const size_t vocab = size_t(a.vocab);
  for (size_t at = 0; at < wanted.size(); at += vocab) {
    errors.push_back(relative_error({found.data() + at, vocab}, {wanted.data() + at, vocab}));
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

// A layer's four products and the head, whose inputs are rounded to bf16, 2^-10 each on average,
// and q, k, v and softmax's weights besides, adding up like a random walk; the CPU's own roundings
// (cache, weights) are shared. Factor 4.
double rounding(const Architecture& a) {
  return 4 * std::sqrt(4.0 * a.layer_count() + 1 + 4) / 1024;
}

TEST(CudaRunner, SaysWhyItCannotRun) {
  const Config config(kRefused);
  std::string why;
  // This one is refused with a device, everything without one: one line in both cases.
  try {
    RunnerOptions options;
    options.kv = KvStorage::bf16;
    make_cuda_runner(config.weights(), options);
  } catch (const Error& error) {
    why = error.what();
  }
  EXPECT_FALSE(why.empty());
  EXPECT_EQ(why.find('\n'), std::string::npos);
}

TEST(CudaRunner, KeepsNoCacheInF32) {
  const Config config(family_of("llama").config);
  RunnerOptions options;
  options.kv = KvStorage::f32;
  EXPECT_THROW(make_cuda_runner(config.weights(), options), Error);
  options.kv = KvStorage::fp8;
  EXPECT_THROW(make_cpu_runner(config.weights(), options), Error);
}

class GpuRunner : public testing::TestWithParam<Family> {};

// 90 tokens at once go operator by operator, five at a time through the decode kernel where it has
// code for the family.
TEST_P(GpuRunner, GivesTheCpusLogits) {
  const Config config(GetParam().config);
  std::string why;
  const auto cuda = cuda_runner(config, why);
  if (!cuda) GTEST_SKIP() << why;
  const auto cpu = cpu_runner(config);
  const Architecture& a = cpu->weights().architecture;
  const std::vector<Token> tokens = prompt(90, 3, a.vocab);
  const std::vector<float> wanted = logits(*cpu, tokens, 90);
  for (const size_t chunk : {90, 38, 5, 1}) {
    const std::vector<float> found = logits(*cuda, tokens, chunk);
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_LT(error_of(a, found, wanted), rounding(a)) << "in chunks of " << chunk;
    EXPECT_EQ(logits(*cuda, tokens, chunk), found) << "again, in chunks of " << chunk;
    const std::vector<float> all(found.end() - a.vocab, found.end());
    EXPECT_LT(relative_error(last_logits(*cuda, tokens, chunk), all), rounding(a))
        << "the last, in chunks of " << chunk;
  }
}

TEST_P(GpuRunner, ServesManySequencesAtOnce) {
  const Config config(GetParam().config);
  std::string why;
  const auto cuda = cuda_runner(config, why);
  if (!cuda) GTEST_SKIP() << why;
  const auto cpu = cpu_runner(config);
  const Architecture& a = cpu->weights().architecture;
  const std::vector<float> found = served(*cuda), wanted = served(*cpu);
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_LT(error_of(a, found, wanted), rounding(a));
  EXPECT_EQ(served(*cuda), found) << "again";
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuRunner, testing::ValuesIn(kFamilies),
                         [](const auto& each) { return std::string(each.param.name); });

// Root mean square of a weight's rounding, relative.
struct Kept {
  const char* format;
  double rounding;
};
const Kept kKept[] = {
    // A step of 2^-3 of the value over sqrt(12), averaged over a binade 0.7.
    {"fp8", 0.7 * 0.125 / 3.46},
    // A 127th of the largest of a row's hundreds of normal values (3.3 deviations) over sqrt(12).
    {"int8", 3.3 / 127 / 3.46},
    // A 15th of the range of 64 normal values (5 deviations) over sqrt(12).
    {"int4", 5.0 / 15 / 3.46},
    // Of normal values in blocks of 64, by simulation: levels are closer where most values are.
    {"nf4", 0.092},
};

class GpuFormats : public testing::TestWithParam<Kept> {};

TEST_P(GpuFormats, KeepWeightsAsAskedFor) {
  const Kept& kept = GetParam();
  for (const char* name : {"llama", "mixtral"}) {
    SCOPED_TRACE(name);
    const Config config(family_of(name).config);
    std::string why;
    const auto exact = cuda_runner(config, why);
    if (!exact) GTEST_SKIP() << why;
    const Architecture& a = exact->weights().architecture;
    const std::vector<Token> tokens = prompt(40, 3, a.vocab);
    const std::vector<float> wanted = logits(*exact, tokens, 40);
    RunnerOptions options;
    options.device_format = device_format_from_name(kept.format);
    const auto runner = cuda_runner(config, why, options);
    ASSERT_TRUE(runner) << why;
    EXPECT_EQ(runner->plan().weights->name, kept.format);
    EXPECT_NE(runner->device().find(kept.format), std::string::npos);
    EXPECT_LT(runner->repacked_bytes(), 0.6 * exact->repacked_bytes());
    const std::vector<float> whole = logits(*runner, tokens, 40);
    EXPECT_EQ(logits(*runner, tokens, 40), whole) << "again";
    // Nine matrices one after the other: their errors add up like a random walk. Factor 2.
    const double error = error_of(a, whole, wanted);
    EXPECT_GT(error, kept.rounding / 2);
    EXPECT_LT(error, kept.rounding * 3 * 2);
    // The decode kernel has the same weights: both ways' roundings of activations add up.
    EXPECT_LT(error_of(a, logits(*runner, tokens, 8), whole), 1.5 * rounding(a));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuFormats, testing::ValuesIn(kKept),
                         [](const auto& each) { return std::string(each.param.format); });

struct Cached {
  const char* name;
  KvStorage kv, cpu;  // the CPU's, which it is held against
  double rounding;    // relative root mean square between the two
};
const Cached kCached[] = {
    // As bf16's, or finer.
    {"fp16", KvStorage::f16, KvStorage::f16, 0},
    // As a weight's, above; the CPU keeps no fp8.
    {"fp8", KvStorage::fp8, KvStorage::bf16, 0.7 * 0.125 / 3.46},
    // A 127th of a head's largest (3 deviations) over sqrt(12), at worst independent of the CPU's.
    {"int8", KvStorage::int8, KvStorage::int8, 1.41 * 3.0 / 127 / 3.46},
};

class GpuCaches : public testing::TestWithParam<std::tuple<Family, Cached>> {};

// Prompts and single tokens, alone and mixed, by every kernel that reads or writes the cache.
TEST_P(GpuCaches, GiveTheCpusLogits) {
  const auto& [family, cached] = GetParam();
  const Config config(family.config);
  std::string why;
  const auto cuda = cuda_runner(config, why, {}, cached.kv);
  if (!cuda) GTEST_SKIP() << why;
  EXPECT_EQ(cuda->plan().kv->name, cached.name);
  const auto cpu = cpu_runner(config, cached.cpu);
  const Architecture& a = cpu->weights().architecture;
  // Keys and values of every layer are rounded once: a random walk. Factor 2.
  const double caching = 2 * cached.rounding * std::sqrt(2.0 * a.layer_count());
  const double limit = std::hypot(rounding(a), caching);
  const std::vector<Token> tokens = prompt(90, 3, a.vocab);
  const std::vector<float> wanted = logits(*cpu, tokens, 90);
  for (const size_t chunk : {90, 38, 5, 1}) {
    const std::vector<float> found = logits(*cuda, tokens, chunk);
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_LT(error_of(a, found, wanted), limit) << "in chunks of " << chunk;
    EXPECT_EQ(logits(*cuda, tokens, chunk), found) << "again, in chunks of " << chunk;
  }
  const std::vector<float> found = served(*cuda);
  EXPECT_LT(error_of(a, found, served(*cpu)), limit);
  EXPECT_EQ(served(*cuda), found) << "again";
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuCaches,
                         testing::Combine(testing::ValuesIn(kFamilies), testing::ValuesIn(kCached)),
                         [](const auto& each) {
                           return fmt::format("{}_{}", std::get<0>(each.param).name,
                                              std::get<1>(each.param).name);
                         });

class GpuDecode : public testing::TestWithParam<KvStorage> {};

// Up to 8 tokens a step, which the decode kernel takes.
TEST_P(GpuDecode, DependsOnTheSequenceAlone) {
  const Config config(family_of("llama").config);
  std::string why;
  RunnerOptions options;
  options.page_tokens = 32;
  const auto runner = cuda_runner(config, why, options, GetParam());
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  const std::vector<Token> tokens = prompt(150, 1, vocab);
  const std::vector<float> alone = logits(*runner, tokens, 1);
  EXPECT_EQ(logits(*runner, tokens, 1), alone) << "the same again";
  EXPECT_EQ(logits(*runner, tokens, 8), alone) << "in half pages";
  EXPECT_EQ(logits(*runner, tokens, 7), alone) << "in chunks";

  // Beside other sequences, of which one prefills.
  const std::vector<Token> others[] = {prompt(3, 5, vocab), prompt(2, 9, vocab)};
  CachedSequence mine(runner->pool()), first(runner->pool()), second(runner->pool());
  std::vector<float> all;
  for (size_t at = 0; at < tokens.size(); at += 3) {
    const auto part = std::span(tokens).subspan(at, std::min<size_t>(3, tokens.size() - at));
    std::vector<Slice> batch;
    first.cut(0), second.cut(0);
    first.extend(3), second.extend(2);
    const int past = mine.length();
    mine.extend(int(part.size()));
    batch.push_back({others[0], 0, first.pages(), 1});
    batch.push_back({part, past, mine.pages(), int(part.size())});
    batch.push_back({others[1], 0, second.pages(), 0});
    const std::span<const float> found = runner->step(batch);
    ASSERT_EQ(found.size(), (1 + part.size()) * size_t(vocab));
    all.insert(all.end(), found.begin() + vocab, found.end());
  }
  EXPECT_EQ(all, alone) << "in a batch";
}

std::string kv_name(const testing::TestParamInfo<KvStorage>& each) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8", "fp8"};  // as KvStorage
  return kNames[size_t(each.param)];
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuDecode,
                         testing::Values(KvStorage::bf16, KvStorage::f16, KvStorage::fp8,
                                         KvStorage::int8),
                         kv_name);

// Steps of equal tiles (33 to 64 tokens): what stands beside a sequence changes nothing.
TEST(GpuForward, DependsOnTheSequenceAndTheTile) {
  const Config config(family_of("llama").config);
  std::string why;
  const auto runner = cuda_runner(config, why);
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  const auto beside = [&](int others, int seed) {
    CachedSequence mine(runner->pool()), theirs(runner->pool());
    const std::vector<Token> tokens = prompt(30, 1, vocab), rest = prompt(others, seed, vocab);
    mine.extend(30), theirs.extend(others);
    const Slice batch[] = {{rest, 0, theirs.pages(), 2}, {tokens, 0, mine.pages(), 30}};
    const std::span<const float> found = runner->step(batch);
    return std::vector<float>(found.begin() + 2 * vocab, found.end());
  };
  const std::vector<float> found = beside(10, 5);
  EXPECT_EQ(beside(10, 9), found);
  EXPECT_EQ(beside(34, 5), found);
}

// One launch, several (rows cross a page), and the forward path.
TEST(GpuGreedy, StepsGiveTheLikeliestTokens) {
  const Config config(family_of("llama").config);
  std::string why;
  const auto runner = cuda_runner(config, why);
  if (!runner) GTEST_SKIP() << why;
  const size_t vocab = size_t(runner->weights().architecture.vocab);
  for (const int count : {1, 5, 14, 40}) {
    for (const int wanted : {1, count}) {
      CachedSequence sequence(runner->pool());
      const std::vector<Token> tokens = prompt(10 + count, count, int(vocab));
      sequence.extend(10);
      const Slice before{std::span(tokens).first(10), 0, sequence.pages(), 0};
      runner->step({&before, 1});
      sequence.extend(count);
      const Slice slice{std::span(tokens).subspan(10), 10, sequence.pages(), wanted};
      const std::span<const float> found = runner->step({&slice, 1});
      std::vector<Token> likeliest;
      for (size_t at = 0; at < found.size(); at += vocab) {
        const auto row = found.subspan(at, vocab);
        likeliest.push_back(Token(std::max_element(row.begin(), row.end()) - row.begin()));
      }
      const std::span<const Token> chosen = runner->likeliest();
      EXPECT_EQ(std::vector<Token>(chosen.begin(), chosen.end()), likeliest) << count << wanted;
    }
  }
}

}  // namespace
}  // namespace ridge
