#include "engine/cpu/elementwise.h"

#include <numeric>

#include "engine/cpu/attention_support.h"
#include "engine/reference/activation.h"
#include "engine/reference/norm.h"

namespace ridge::cpu::testing {
namespace {

constexpr float kSentinel = 12345;

TEST(CpuElementwise, RmsNormIsAsDefined) {
  on_every_target([&] {
    ThreadTeam team(2);
    for (const int columns : {1, 7, 8, 63, 64, 100, 256, 1000, 8192}) {
      SCOPED_TRACE(columns);
      for (const int tokens : {1, 5}) {
        const int stride = columns + 3, y_stride = columns + 7;
        const auto x = normals(size_t(tokens * stride), 1, 3), w = normals(size_t(columns), 2);
        std::vector<float> y(size_t(tokens * y_stride), kSentinel), expected(size_t(columns), 0);
        rms_norm(team, x.data(), stride, tokens, columns, w.data(), 1e-5f, y.data(), y_stride);
        for (int t = 0; t < tokens; ++t) {
          reference::rms_norm(x.data() + t * stride, columns, w.data(), 1e-5f, expected.data());
          for (int c = 0; c < columns; ++c) {
            // Chunks of 256 in at least one lane: half a rounding each, two products, one root.
            const float e = expected[size_t(c)];
            ASSERT_NEAR(y[size_t(t * y_stride + c)], e, std::fabs(e) * (32 + 4) * 0x1p-24);
          }
          for (int c = columns; c < y_stride; ++c)
            ASSERT_EQ(y[size_t(t * y_stride + c)], kSentinel);
        }
        auto in_place = x;
        rms_norm(team, in_place.data(), stride, tokens, columns, w.data(), 1e-5f, in_place.data(),
                 stride);
        for (int t = 0; t < tokens; ++t) {
          EXPECT_EQ(std::memcmp(in_place.data() + t * stride, y.data() + t * y_stride,
                                size_t(columns) * sizeof(float)),
                    0);
        }
      }
    }
  });
}

TEST(CpuElementwise, RmsNormOfZerosIsZero) {
  ThreadTeam team(1);
  std::vector<float> x(100, 0), y(100, kSentinel), w(100, 2);
  rms_norm(team, x.data(), 100, 1, 100, w.data(), 1e-5f, y.data(), 100);
  for (const float value : y) EXPECT_EQ(value, 0);
}

TEST(CpuElementwise, RmsNormAddAddsTheNorm) {
  on_every_target([&] {
    ThreadTeam team(2);
    const int columns = 203, tokens = 90;  // enough to be shared
    const auto y = normals(size_t(tokens * columns), 1), w = normals(size_t(columns), 2);
    const auto before = normals(size_t(tokens * columns), 3);
    auto x = before;
    std::vector<float> norm(size_t(columns), 0);
    rms_norm_add(team, y.data(), columns, tokens, columns, w.data(), 1e-6f, x.data(), columns);
    for (int t = 0; t < tokens; ++t) {
      reference::rms_norm(y.data() + t * columns, columns, w.data(), 1e-6f, norm.data());
      for (int c = 0; c < columns; ++c) {
        const size_t at = size_t(t * columns + c);
        const double size = std::fabs(double(norm[size_t(c)])) + std::fabs(double(before[at]));
        ASSERT_NEAR(double(x[at]), double(before[at]) + double(norm[size_t(c)]),
                    size * 36 * 0x1p-24);
      }
    }
  });
}

TEST(CpuElementwise, EmbedsAnyStorage) {
  on_every_target([&] {
    ThreadTeam team(2);
    const int64_t rows = 20, columns = 256;
    const auto values = normals(size_t(rows * columns), 1);
    for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16, Storage::q8_0}) {
      const size_t row_bytes = storage_bytes(storage, columns);
      std::vector<std::byte> data(size_t(rows) * row_bytes);
      for (int64_t r = 0; r < rows; ++r) {
        quantize(storage, values.data() + r * columns, columns,
                 data.data() + size_t(r) * row_bytes);
      }
      const Matrix table{storage, rows, columns, data.data(), int64_t(row_bytes)};
      std::vector<int32_t> tokens(100);
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i * 7 % 20);
      const int64_t stride = columns + 1;
      std::vector<float> x(tokens.size() * size_t(stride), kSentinel),
          row(static_cast<size_t>(columns));
      embed(team, table, tokens.data(), int(tokens.size()), 3, x.data(), stride);
      for (size_t t = 0; t < tokens.size(); ++t) {
        dequantize(storage, table.row(tokens[t]), columns, row.data());
        const float* got = x.data() + int64_t(t) * stride;
        for (int64_t c = 0; c < columns; ++c) ASSERT_EQ(got[c], 3 * row[size_t(c)]);
        ASSERT_EQ(got[columns], kSentinel);
      }
    }
  });
}

TEST(CpuElementwise, SoftCapIsAsDefined) {
  on_every_target([&] {
    ThreadTeam one(1), two(2);
    std::vector<float> x = normals(20011, 1, 40);
    for (const float extreme : {0.0f, 1e-20f, -1e-3f, 1e5f, -1e30f}) x.push_back(extreme);
    auto y = x, z = x;
    soft_cap(two, y.data(), int64_t(y.size()) - 1, 30);
    EXPECT_EQ(y.back(), x.back());  // not touched
    for (size_t i = 0; i + 1 < x.size(); ++i) {
      const double expected = 30 * std::tanh(double(x[i]) / 30);
      ASSERT_NEAR(y[i], expected, std::fabs(expected) * 8 * 0x1p-24) << x[i];  // Tanh: 4 ulp
    }
    soft_cap(one, z.data(), int64_t(z.size()) - 1, 30);
    EXPECT_EQ(std::memcmp(y.data(), z.data(), y.size() * sizeof(float)), 0);
  });
}

TEST(CpuElementwise, ChoosesExperts) {
  const std::vector<float> logits{1, 3, 2, 3, -1};
  std::vector<int32_t> chosen(4, -7);
  std::vector<float> weight(4, kSentinel);
  choose_experts(logits.data(), 5, 3, false, chosen.data(), weight.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 3, 2, -7}));  // the lower first among equals
  double total = 0;
  for (const float l : logits) total += std::exp(double(l));
  EXPECT_NEAR(weight[0], std::exp(3) / total, 1e-7);
  EXPECT_NEAR(weight[2], std::exp(2) / total, 1e-7);
  EXPECT_EQ(weight[3], kSentinel);
  choose_experts(logits.data(), 5, 3, true, chosen.data(), weight.data());
  EXPECT_NEAR(weight[0] + weight[1] + weight[2], 1, 2e-7);
  EXPECT_NEAR(weight[2], std::exp(2) / (2 * std::exp(3) + std::exp(2)), 1e-7);
}

// Groups of two. By their best, {3, 1} and {2, -1} lead; by their two best after the correction,
// the first and the last do.
TEST(CpuElementwise, ChoosesExpertsOfTheBestGroups) {
  const std::vector<float> logits{1, 3, 2, -1, 0, 1.5f};
  const std::vector<float> correction{0, 0, -0.5f, 0, 0.3f, 0.2f};
  std::vector<int32_t> chosen(3);
  std::vector<float> weight(3);
  RouterRules rules{.groups = 3, .top_groups = 2, .scale = 4};
  choose_experts(logits.data(), 6, 3, false, chosen.data(), weight.data(), rules);
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 2, 0}));
  double total = 0;
  for (const float l : logits) total += std::exp(double(l));
  EXPECT_NEAR(weight[1], 4 * std::exp(2) / total, 1e-6);

  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  rules.sigmoid = rules.correction = true;
  choose_experts(logits.data(), 6, 3, true, chosen.data(), weight.data(), rules, correction.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{5, 1, 4}));
  // The correction is no part of the weights.
  const double sum = sigmoid(1.5) + sigmoid(3) + sigmoid(0);
  EXPECT_NEAR(weight[0], 4 * sigmoid(1.5) / sum, 1e-6);
  EXPECT_NEAR(weight[2], 4 * sigmoid(0) / sum, 1e-6);
}

TEST(CpuElementwise, ChoosesExpertsOfExtremeLogits) {
  const std::vector<float> logits{-1e30f, 1e30f, 0, 88};
  std::vector<int32_t> chosen(4);
  std::vector<float> weight(4);
  choose_experts(logits.data(), 4, 4, true, chosen.data(), weight.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 3, 2, 0}));
  EXPECT_EQ(weight, (std::vector<float>{1, 0, 0, 0}));
}

TEST(Reference, ActivationsHaveTheirKnownValues) {
  EXPECT_EQ(reference::silu(0), 0);
  EXPECT_NEAR(reference::silu(1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(reference::gelu_tanh(1), 0.8411919906082768, 1e-15);  // PyTorch, approximate="tanh"
  EXPECT_NEAR(reference::gelu_tanh(-1), -0.15880800939172324, 1e-15);
  const float gate[] = {1, -2}, up[] = {2, 3};
  float y[2];
  reference::gated(Activation::silu, gate, up, 2, y);
  EXPECT_FLOAT_EQ(y[0], 2 * 0.73105858f);
  EXPECT_FLOAT_EQ(y[1], 3 * -0.23840584f);
}

}  // namespace
}  // namespace ridge::cpu::testing
