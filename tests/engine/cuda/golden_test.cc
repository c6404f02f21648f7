// The CUDA runner against Hugging Face transformers, every family: logits and the 64
// greedy tokens. Skipped where no device is (ctest label gpu).
#include "engine/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/cuda/layout/wide_heads.h"
#include "engine/cuda/on_device.h"
#include "engine/cuda/routing_ties.h"
#include "engine/reference/forward.h"
#include "engine/runner/runner.h"

namespace ridge {
namespace {

// The same function with the heads that the device is given. Matrices become bf16, which the
// goldens' are.
Weights widened(Weights weights) {
  Architecture& a = weights.architecture;
  choose_long_ropes(a, 256);  // as cuda_runner's cache
  const cuda::WideHeads heads(a.head_dim, a.ropes[0].dims());
  const auto made = [&](const cuda::FillRows& fill, int64_t rows, int64_t columns) {
    auto data = std::make_shared<std::vector<uint16_t>>(size_t(rows * columns));
    fill(0, rows / 2, data->data());  // in two pieces, as a large matrix is
    fill(rows / 2, rows - rows / 2, data->data() + rows / 2 * columns);
    weights.owners.push_back(data);
    return Matrix{Storage::bf16, rows, columns, reinterpret_cast<const std::byte*>(data->data()),
                  columns * 2};
  };
  const int64_t q_columns = int64_t{a.heads} * heads.wide();
  const int64_t kv_columns = int64_t{a.kv_heads} * heads.wide();
  if (a.unit_qk) {  // as the device has it: a norm before RoPE (model_shape.cc)
    a.unit_qk = false, a.qk_norm = true;
    for (size_t l = 0; l < weights.layers.size(); ++l) {
      if (a.ropes[size_t(a.layers[l].rope)].frequency.empty()) continue;
      weights.layers[l].q_norm = weights.layers[l].k_norm = Vector(size_t(a.head_dim), 1.0f);
    }
  }
  for (LayerWeights& layer : weights.layers) {
    layer.q = made(heads.rows(layer.q), q_columns, a.hidden);
    layer.k = made(heads.rows(layer.k), kv_columns, a.hidden);
    layer.v = made(heads.rows(layer.v), kv_columns, a.hidden);
    layer.out = made(heads.columns(layer.out), a.hidden, q_columns);
    for (Vector* bias : {&layer.q_bias, &layer.k_bias, &layer.v_bias}) *bias = heads.vector(*bias);
    for (Vector* norm : {&layer.q_norm, &layer.k_norm}) *norm = heads.norm(*norm);
  }
  for (Rope& rope : a.ropes) {
    if (!rope.frequency.empty()) rope.frequency = heads.frequency(rope.frequency);
  }
  a.head_dim = heads.wide();
  return weights;
}

std::vector<Token> all_tokens(const Golden& golden) {
  std::vector<Token> tokens = golden.prompt;
  tokens.insert(tokens.end(), golden.tokens.begin(), golden.tokens.end());
  return tokens;
}

double largest_of(const Golden& golden) {
  double largest = 0;
  for (float logit : golden.logits) largest = std::max(largest, std::abs(double(logit)));
  return largest;
}

// The largest difference to transformers, over the largest logit.
template <typename Logits>
double error(const Golden& golden, const Logits& logits) {
  const size_t vocab = golden.logits.size() / golden.positions.size();
  double most = 0;
  for (size_t p = 0; p < golden.positions.size(); ++p) {
    for (size_t v = 0; v < vocab; ++v) {
      const double got = logits[size_t(golden.positions[p]) * vocab + v];
      most = std::max(most, std::abs(got - double(golden.logits[p * vocab + v])));
    }
  }
  return most / largest_of(golden);
}

// Every position's logits: the prompt in one step, then token by token, as generation has them.
std::vector<float> generated(Runner& runner, const Golden& golden) {
  PagePool pool = pool_of(runner);
  KvSequence sequence(pool);
  std::vector<float> all = logits_of(runner, sequence, golden.prompt, int(golden.prompt.size()));
  for (const Token& token : golden.tokens) {
    const std::vector<float> found = logits_of(runner, sequence, {&token, 1}, 1);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

// Null, with the reason, where there is no device.
std::unique_ptr<Runner> cuda_runner(const Golden& golden, std::string& why) {
  RunnerOptions options;
  options.kv = KvStorage::bf16;
  options.cache_tokens = 256;
  options.max_logit_rows = int(golden.prompt.size());
  return on_device(load_weights(golden.folder), options, why);
}

// Latent attention has no heads to widen.
std::vector<Golden> goldens_with_heads() {
  std::vector<Golden> all = goldens();
  std::erase_if(all, [](const Golden& golden) { return golden.name.starts_with("deepseek"); });
  return all;
}

class WidenedGolden : public testing::TestWithParam<Golden> {};
class GpuGoldens : public testing::TestWithParam<Golden> {};

// 2^-24 a rounding as in golden_test.cc; a head norm's epsilon of 1e-5 weighs as many times more as
// there are columns, against squares near 1.
TEST_P(WidenedGolden, IsTransformers) {
  const Golden& golden = GetParam();
  Weights weights = load_weights(golden.folder);
  const bool norms = weights.architecture.qk_norm || weights.architecture.unit_qk;
  const double epsilon = norms ? 1e-5 * (64.0 / weights.architecture.head_dim - 1) : 0;
  weights = widened(std::move(weights));
  EXPECT_EQ(weights.architecture.head_dim, 64);
  EXPECT_LT(error(golden, reference::forward(weights, all_tokens(golden))),
            std::ldexp(1, -24) * 20 * 8 * 2 + epsilon);
}

// The goldens' weights are bf16 numbers, so all that differs from transformers' float32 is that
// activations are rounded to bf16 (at most 2^-9, over sqrt(3) on average) where they enter a
// product: seven times a layer (inputs of four products, q, k, v; of latent attention also what
// enters and leaves the latent space, and the queries' own latent) and before the head. Roundings
// add up like a random walk. The matrices' deviation of 1.5 / sqrt(columns) multiplies what enters
// a layer by 1.5, and a score by 1.5 twice; a softmax turns a score's error into a relative one: 3.
// Yarn's ropes stretch q and k, and scores by the square.
double rounding(const Architecture& a) {
  double stretch = 1;
  for (const Rope& rope : a.ropes) stretch = std::max(stretch, std::pow(rope.magnitude, 2.0));
  const int each = !a.latent ? 7 : a.latent.q_rank > 0 ? 10 : 9;
  return 3 * stretch * std::ldexp(1, -9) / std::sqrt(3.0) *
         std::sqrt(double(each) * a.layer_count() + 1);
}

TEST_P(GpuGoldens, LogitsAndGreedyTokens) {
  const Golden& golden = GetParam();
  std::string why;
  const auto runner = cuda_runner(golden, why);
  if (!runner) GTEST_SKIP() << golden.name << ": " << why;
  const Architecture& a = runner->weights().architecture;
  const size_t vocab = size_t(a.vocab);
  const std::vector<float> found = generated(*runner, golden);
  // The specification is transformers (golden_test.cc), and known at every position.
  const Weights weights = load_weights(golden.folder);
  std::vector<double> gaps;
  const std::vector<double> wanted = reference::forward(weights, all_tokens(golden), &gaps);
  const RoutingTies ties(gaps, 2 * rounding(a));
  ASSERT_EQ(found.size(), wanted.size());

  double size = 0;
  for (double logit : wanted) size += logit * logit;
  size = std::sqrt(size / double(wanted.size()));  // of a logit
  std::vector<double> errors;                      // of a position, relative
  for (size_t p = 0; p < wanted.size() / vocab; ++p) {
    double sum = 0;
    for (size_t i = p * vocab; i < (p + 1) * vocab; ++i) sum += std::pow(found[i] - wanted[i], 2);
    errors.push_back(std::sqrt(sum / double(vocab)) / size);
  }
  std::vector<double> sorted = errors;
  std::sort(sorted.begin(), sorted.end());
  // Half of the positions within the expected error, all but one within four times that: of 1000
  // runs in doubles with these roundings drawn anew (200 of each of the Llama and Mistral goldens),
  // 75 had one position beyond, mostly llama-linear's 75th, and none had two. Positions at a
  // routing tie may differ altogether, and those after one in part (routing_ties.h).
  EXPECT_LT(sorted[sorted.size() / 2], rounding(a));
  int beyond = 0;
  for (size_t p = 0; p < errors.size(); ++p) {
    beyond += !ties.tied(p) && errors[p] >= ties.limit(p, 4 * rounding(a));
  }
  EXPECT_LE(beyond, 1);
  if (a.experts == 0) {
    EXPECT_LT(error(golden, found), std::ldexp(1, -9) * 16) << "as the CPU's, golden_test.cc";
  }

  // The token that comes out is transformers', or one that is as good but for the error of two
  // logits: four deviations of them.
  size_t same = 0, compared = 0;
  for (size_t s = 0; s < golden.tokens.size(); ++s) {
    const size_t p = golden.prompt.size() - 1 + s;
    if (ties.tied(p)) continue;
    ++compared;
    const float* row = &found[p * vocab];
    const size_t best = size_t(std::max_element(row, row + vocab) - row);
    const double behind = wanted[p * vocab + size_t(golden.tokens[s])] - wanted[p * vocab + best];
    EXPECT_LT(behind, std::sqrt(2.0) * ties.limit(p, 4 * rounding(a)) * size) << "token " << s;
    same += best == size_t(golden.tokens[s]);
  }
  RecordProperty("equal_tokens", int(same));
  EXPECT_GE(same, compared * 3 / 4);
  EXPECT_GT(compared, golden.tokens.size() / 2);
  EXPECT_TRUE(ties.count() > 0 || compared == golden.tokens.size());
}

std::string name_of(const testing::TestParamInfo<Golden>& each) {
  std::string name = each.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Transformers, WidenedGolden, testing::ValuesIn(goldens_with_heads()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Gpu, GpuGoldens, testing::ValuesIn(goldens()), name_of);

}  // namespace
}  // namespace ridge
