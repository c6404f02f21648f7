// Against Hugging Face transformers, every family: logits and 64 greedy tokens in float32.
#include "engine/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/generate/generate.h"
#include "engine/reference/forward.h"
#include "engine/runner/runner.h"

namespace ridge {
namespace {

// The same weights as float32, so that products are.
Weights widened(Weights weights) {
  const auto widen = [&](Matrix& matrix) {
    if (!matrix || matrix.storage == Storage::f32) return;
    auto floats = std::make_shared<std::vector<float>>(size_t(matrix.rows * matrix.columns));
    for (int64_t r = 0; r < matrix.rows; ++r) {
      dequantize(matrix.storage, matrix.row(r), matrix.columns,
                 floats->data() + r * matrix.columns);
    }
    matrix.storage = Storage::f32;
    matrix.row_stride = matrix.columns * int64_t(sizeof(float));
    matrix.data = reinterpret_cast<const std::byte*>(floats->data());
    weights.owners.push_back(floats);
  };
  widen(weights.embed);
  widen(weights.head);
  for (LayerWeights& layer : weights.layers) {
    for (Matrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.q_a, &layer.kv_a, &layer.kv_b,
                           &layer.out, &layer.gate, &layer.up, &layer.down, &layer.router,
                           &layer.shared_gate, &layer.shared_up, &layer.shared_down}) {
      widen(*matrix);
    }
    for (auto* experts : {&layer.expert_gate, &layer.expert_up, &layer.expert_down}) {
      for (Matrix& matrix : *experts) widen(matrix);
    }
  }
  return weights;
}

class GoldenOf : public testing::TestWithParam<Golden> {
 protected:
  // Every token of prompt and golden continuation.
  static std::vector<Token> all_tokens() {
    std::vector<Token> tokens = GetParam().prompt;
    tokens.insert(tokens.end(), GetParam().tokens.begin(), GetParam().tokens.end());
    return tokens;
  }
  // The largest difference at each golden position, over the largest logit of all; sorted.
  template <typename Logits>
  static std::vector<double> errors(const Logits& logits) {
    const Golden& golden = GetParam();
    const size_t vocab = golden.logits.size() / golden.positions.size();
    double largest = 0;
    for (float logit : golden.logits) largest = std::max(largest, std::abs(double(logit)));
    std::vector<double> worst;
    for (size_t p = 0; p < golden.positions.size(); ++p) {
      double most = 0;
      for (size_t v = 0; v < vocab; ++v) {
        const double got = logits[size_t(golden.positions[p]) * vocab + v];
        most = std::max(most, std::abs(got - double(golden.logits[p * vocab + v])));
      }
      worst.push_back(most / largest);
    }
    std::sort(worst.begin(), worst.end());
    return worst;
  }
  template <typename Logits>
  static double error(const Logits& logits) {
    return errors(logits).back();
  }
  static std::vector<float> run(Weights weights, KvStorage kv) {
    const std::vector<Token> tokens = all_tokens();
    const auto runner = make_cpu_runner(
        std::move(weights),
        {.threads = 2, .kv = kv, .cache_tokens = 256, .max_logit_rows = int(tokens.size())});
    PagePool pool(runner->page_count(), runner->options().page_tokens);
    KvSequence sequence(pool);
    Ledger ledger;
    prefill(*runner, sequence, tokens, int(tokens.size()), ledger);
    const auto rows = runner->logits();
    return {rows.begin(), rows.end()};
  }
};

// transformers sums in float32: 2^-24 a rounding, times the square root of what is summed (a few
// hundred) and of the layers' few dozen operators, doubled where errors feed a softmax.
TEST_P(GoldenOf, TheSpecificationIsTransformers) {
  const Weights weights = load_weights(GetParam().folder);
  EXPECT_LT(error(reference::forward(weights, all_tokens())), std::ldexp(1, -24) * 20 * 8 * 2);
}

// Float32 products over a float32 cache: the same roundings again, on our side.
TEST_P(GoldenOf, LogitsInFloat32) {
  EXPECT_LT(error(run(widened(load_weights(GetParam().folder)), KvStorage::f32)),
            std::ldexp(1, -24) * 20 * 8 * 4);
}

// Keys and values rounded to half: 2^-12 each on average, through at most seven layers.
TEST_P(GoldenOf, LogitsWithAHalfCache) {
  EXPECT_LT(error(run(widened(load_weights(GetParam().folder)), KvStorage::f16)),
            std::ldexp(1, -11) * 8);
}

// As stored: bf16 weights, activations rounded to bf16 (2^-9) where the CPU multiplies those. A
// router's near tie may then fall to another expert, which changes that position altogether: with
// experts, half of the positions must hold.
TEST_P(GoldenOf, LogitsAsStored) {
  Weights weights = load_weights(GetParam().folder);
  const bool routed = weights.architecture.experts > 0;
  const std::vector<double> sorted = errors(run(std::move(weights), KvStorage::bf16));
  EXPECT_LT(routed ? sorted[sorted.size() / 2] : sorted.back(), std::ldexp(1, -9) * 16);
}

TEST_P(GoldenOf, SixtyFourGreedyTokens) {
  const Golden& golden = GetParam();
  const auto runner = make_cpu_runner(widened(load_weights(golden.folder)),
                                      {.threads = 2, .kv = KvStorage::f32, .cache_tokens = 256});
  PagePool pool(runner->page_count(), runner->options().page_tokens);
  KvSequence sequence(pool);
  GenerateOptions options;
  options.max_tokens = int(golden.tokens.size());
  options.ignore_end = true;
  const Generated made = generate(*runner, sequence, golden.prompt, options, {});
  EXPECT_EQ(made.tokens, golden.tokens);
}

INSTANTIATE_TEST_SUITE_P(Transformers, GoldenOf, testing::ValuesIn(goldens()),
                         [](const auto& each) {
                           std::string name = each.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ridge
