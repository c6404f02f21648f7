// The AMX kernel on modelled tiles, on every machine, and on the CPU's own where it has them.
#include "engine/cpu/matmul_amx.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/weights/storage.h"

namespace ridge::cpu {
namespace {

// Weights and activations of one GEMM, and its sums by definition.
struct AmxCase {
  int64_t rows, columns;
  int tokens;
  std::vector<uint16_t> w, x;
  Matrix matrix;
  InputView input;

  AmxCase(int64_t row_count, int64_t column_count, int token_count)
      : rows(row_count), columns(column_count), tokens(token_count) {
    std::mt19937 random(7);
    std::normal_distribution<float> values;
    input.bf16_stride = (columns + 31) / 32 * 32 + 32;
    w.resize(size_t(rows * columns));
    x.assign(size_t(tokens * input.bf16_stride + 64), 0);
    for (uint16_t& value : w) value = f32_to_bf16(values(random));
    for (int t = 0; t < tokens; ++t) {
      for (int64_t c = 0; c < columns; ++c) {
        x[size_t(t * input.bf16_stride + c)] = f32_to_bf16(values(random));
      }
    }
    matrix = {Storage::bf16, rows, columns, reinterpret_cast<const std::byte*>(w.data()),
              columns * 2};
    input.bf16 = x.data();
  }
  double exact(int64_t row, int token, double& magnitude) const {
    double sum = 0;
    magnitude = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double product = double(bf16_to_f32(w[size_t(row * columns + c)])) *
                             double(bf16_to_f32(x[size_t(token * input.bf16_stride + c)]));
      sum += product;
      magnitude += std::abs(product);
    }
    return sum;
  }
};

// The groups of a matrix as tiles read them.
template <class Tiles>
struct PackedTiles {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines;
  WeightView view;

  explicit PackedTiles(const Matrix& m) {
    const int64_t stride = AmxKernel<Tiles>::packed_bytes(m.columns), groups = group_count(m.rows);
    lines.resize(size_t(groups * stride) / 64);
    auto* const to = reinterpret_cast<std::byte*>(lines.data());
    for (int64_t g = 0; g < groups; ++g) AmxKernel<Tiles>::pack(m, g, to + g * stride);
    view = {to, stride, m.rows, m.columns, true};
  }
};

// [token][row], by the way of prompts, with tokens in slices of `slice`.
template <class Tiles>
std::vector<float> by_panels(const AmxCase& c, int slice) {
  using Kernel = AmxKernel<Tiles>;
  const int64_t groups = (c.rows + kGroup - 1) / kGroup;
  std::vector<float> all(size_t(c.tokens * c.rows));
  const PackedTiles<Tiles> packed(c.matrix);
  std::vector<float> sums(size_t(2 * kTokenBlock * kGroup));
  Tiles::begin();
  for (int64_t g = 0; g < groups; g += 2) {
    const int count = int(std::min<int64_t>(2, groups - g));
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t column = 0; column < c.columns; column += Kernel::kChunk) {
      const std::byte* const panel =
          packed.view.data + g * packed.view.stride + column * Kernel::kernel().packed_column_bytes;
      for (int t = 0; t < c.tokens; t += slice) {
        Kernel::multiply(panel, packed.view.stride, count, column, c.columns, c.input, t,
                         std::min(slice, c.tokens - t), sums.data() + t * kGroup);
      }
    }
    for (int t = 0; t < c.tokens; ++t) {
      for (int64_t r = g * kGroup; r < std::min((g + count) * kGroup, c.rows); ++r) {
        const int64_t in = (r / kGroup - g) * kTokenBlock * kGroup + t * kGroup + r % kGroup;
        all[size_t(t * c.rows + r)] = sums[size_t(in)];
      }
    }
  }
  Tiles::end();
  return all;
}

// The same by the way of decode, `at_once` tokens together.
template <class Tiles>
std::vector<float> by_stream(const AmxCase& c, int at_once) {
  std::vector<float> all(size_t(c.tokens * c.rows));
  const PackedTiles<Tiles> packed(c.matrix);
  Tiles::begin();
  for (int t = 0; t < c.tokens; t += at_once) {
    const int tokens = std::min(at_once, c.tokens - t);
    for (int64_t g = 0; g * kGroup < c.rows; ++g) {
      alignas(64) float sums[8 * kGroup];
      AmxKernel<Tiles>::stream(packed.view, g, c.input, t, tokens, sums);
      for (int i = 0; i < tokens; ++i) {
        for (int64_t r = g * kGroup; r < std::min((g + 1) * kGroup, c.rows); ++r) {
          all[size_t((t + i) * c.rows + r)] = sums[i * kGroup + r % kGroup];
        }
      }
    }
  }
  Tiles::end();
  return all;
}

template <class Tiles>
class AmxKernelOn : public ::testing::Test {};
#if defined(__x86_64__)
using AmxKinds = ::testing::Types<ModelTiles, AmxTiles>;
#else
using AmxKinds = ::testing::Types<ModelTiles>;
#endif
TYPED_TEST_SUITE(AmxKernelOn, AmxKinds);

TYPED_TEST(AmxKernelOn, SumsAreExactAndTheSameBitsEveryWay) {
  if (!std::is_same_v<TypeParam, ModelTiles> && !amx_is_usable()) GTEST_SKIP() << "no AMX here";
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{40, 544}, {33, 100}, {7, 40}, {16, 32}}) {
    for (const int tokens : {1, 6, 17, 33}) {
      const AmxCase c(rows, columns, tokens);
      const std::vector<float> sums = by_panels<TypeParam>(c, 256);
      for (int t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < rows; ++r) {
          double magnitude = 0;
          const double exact = c.exact(r, t, magnitude);
          // Chains of 16, and one more addition for every 32 columns.
          const double bound = magnitude * std::ldexp(18 + double(columns) / 32, -24);
          ASSERT_NEAR(sums[size_t(t * rows + r)], exact, bound) << r << ", " << t;
        }
      }
      EXPECT_EQ(by_panels<TypeParam>(c, 16), sums);
      EXPECT_EQ(by_panels<TypeParam>(c, 12), sums);
      for (const int at_once : {1, 2, 6}) EXPECT_EQ(by_stream<TypeParam>(c, at_once), sums);
    }
  }
}

// finish_pair() gives the bits of finish(): sums, residuals, and SiLU in bf16 with infinities and
// NaN among the gates.
TEST(AmxEpilogue, OfTwoGroupsIsThatOfRows) {
  const PlainKernels& kernels = all_matmul_kernels()[0].plain;
  if (kernels.finish_pair == nullptr) GTEST_SKIP() << "no AMX here";
  constexpr int kTokens = 5;
  constexpr int64_t kStride = 48;
  alignas(64) float sums[2 * kTokens * kGroup], up[2 * kTokens * kGroup];
  std::mt19937 random(3);
  std::normal_distribution<float> values(0, 4);
  for (float& sum : sums) sum = values(random);
  for (float& value : up) value = values(random);
  const float specials[] = {INFINITY, -INFINITY, NAN, 0, 90, -90, 1e30f, -1e30f};
  std::copy(std::begin(specials), std::end(specials), sums + kGroup);
  struct Case {
    bool bf16, gated, accumulate, streams;
  };
  for (const Case c : {Case{false, false, false, false},
                       {false, false, false, true},
                       {false, false, true, false},
                       {true, false, false, false},
                       {true, true, false, false}}) {
    alignas(64) float y[2][kTokens * kStride] = {};
    uint16_t half[2][kTokens * kStride] = {};
    for (int i = 0; i < 2; ++i) {
      Epilogue e;
      e.y = c.bf16 ? nullptr : y[i];
      e.bf16 = c.bf16 ? half[i] : nullptr;
      e.stride = kStride;
      e.rows = 2 * kGroup;
      e.tokens = kTokens;
      e.sums = sums;
      e.group_stride = kTokens * kGroup;
      e.up = c.gated ? up : nullptr;
      e.accumulate = c.accumulate;
      e.streams = c.streams;
      std::fill_n(y[i], kTokens * kStride, 1.5f);
      ASSERT_TRUE(is_plain_pair(e));
      (i == 0 ? kernels.finish : kernels.finish_pair)(e);
    }
    EXPECT_EQ(std::memcmp(y[0], y[1], sizeof y[0]), 0);
    EXPECT_EQ(std::memcmp(half[0], half[1], sizeof half[0]), 0);
  }
}

// ---- block formats

// A row of a packed group as bf16, by definition: q scale + min, or (q - offset) scale, in f32.
std::vector<uint16_t> packed_row(Layout layout, const std::byte* group, int64_t row,
                                 int64_t columns) {
  const LayoutInfo info = layout_info(layout);
  std::vector<uint16_t> to;
  for (int64_t c = 0; c < columns; ++c) {
    const std::byte* const pair = group + c / 64 * info.pair_bytes();
    const int64_t second = c / 32 % 2, at = c % 32;
    const auto half = [&](int64_t offset) {
      uint16_t bits;
      std::memcpy(&bits, pair + offset + row * 2, 2);
      return f16_to_f32(bits);
    };
    const float scale = half(second * info.scale_bytes() + at / info.columns_per_scale * 32);
    const std::byte* const data =
        pair + 2 * (info.scale_bytes() + info.min_bytes()) + second * info.data_bytes();
    const int64_t stored = info.stored_bits == 8 ? at : at % 16;
    int q = int(data[(stored / 4 * kGroup + row) * 4 + stored % 4]);
    if (info.stored_bits == 4) q = at < 16 ? q & 15 : q >> 4;
    if (layout == Layout::fp4) q = kFp4Levels[q];
    const float min =
        info.min ? half(2 * info.scale_bytes() + second * info.min_bytes()) : -info.offset * scale;
    to.push_back(f32_to_bf16(float(q) * scale + min));
  }
  return to;
}

// A sum as TDPBF16PS has it: per 32 columns, even and odd ones in a chain each.
float tile_sum(std::span<const uint16_t> w, std::span<const uint16_t> x) {
  float sum = 0;
  for (size_t c = 0; c < w.size(); c += 32) {
    float parts[2] = {0, 0};
    for (size_t i = c; i < c + 32; ++i) {
      parts[i % 2] = std::fma(bf16_to_f32(x[i]), bf16_to_f32(w[i]), parts[i % 2]);
    }
    sum += parts[0] + parts[1];
  }
  return sum;
}

constexpr Storage kBlockStorages[] = {Storage::q8_0, Storage::q4_0, Storage::q4_1,
                                      Storage::q5_0, Storage::q5_1, Storage::q4_k,
                                      Storage::q5_k, Storage::q6_k, Storage::mxfp4};

struct BlockMatrix {
  Matrix view;
  std::vector<std::byte> bytes;
};

BlockMatrix block_matrix(Storage storage, int64_t rows, int64_t columns) {
  std::mt19937 random(11);
  std::normal_distribution<float> values(0, 0.3f);
  BlockMatrix m;
  const size_t stride = storage_bytes(storage, columns);
  m.bytes.resize(stride * size_t(rows));
  std::vector<float> row(size_t(columns), 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    std::byte* const to = m.bytes.data() + size_t(r) * stride;
    if (storage != Storage::q5_k && storage != Storage::q6_k) {
      for (float& value : row) value = values(random);
      quantize(storage, row.data(), columns, to);
      continue;
    }
    // Random integers with ordinary scales.
    for (size_t i = 0; i < stride; ++i) to[i] = std::byte(random());
    const uint16_t scale = f32_to_f16(0.01f);
    for (size_t b = 0; b < stride; b += size_t(storage_info(storage).bytes)) {
      for (const size_t at : {storage == Storage::q6_k ? size_t{208} : size_t{0}, size_t{2}}) {
        std::memcpy(to + b + at, &scale, 2);
      }
    }
  }
  m.view = {storage, rows, columns, m.bytes.data(), int64_t(stride)};
  return m;
}

// Every instruction set unpacks the same bits.
TEST(AmxBlocks, AreUnpackedByDefinition) {
  for (const BlockKernels& kernels : block_kernels()) {
    for (const Storage storage : kBlockStorages) {
      const Layout layout = layout_of(storage);
      const int64_t columns = storage_info(storage).block == 256 ? 768 : 544, rows = 13;
      const BlockMatrix m = block_matrix(storage, rows, columns);
      alignas(64) static std::byte group[64 << 10], panel[kPanelBytes];
      pack_group(m.view, 0, group);
      const WeightView view{group, group_bytes(layout, columns), rows, columns, true};
      for (int64_t column = 0; column < columns; column += 512) {
        kernels.bf16[int(layout)](view, 0, column, panel);
        for (int64_t r = 0; r < rows; ++r) {
          const std::vector<uint16_t> want = packed_row(layout, group, r, columns);
          for (int64_t c = column; c < std::min<int64_t>(columns, column + 512); ++c) {
            const int64_t in = (c - column) / 2 * kGroup * 4 + r * 4 + c % 2 * 2;
            uint16_t got;
            std::memcpy(&got, panel + in, 2);
            ASSERT_EQ(got, want[size_t(c)])
                << kernels.isa << ' ' << storage_info(storage).name << ' ' << r << ' ' << c;
          }
        }
      }
    }
  }
}

template <class Tiles>
class AmxBlocksOn : public AmxKernelOn<Tiles> {
 protected:
  void SetUp() override {
    if (!std::is_same_v<Tiles, ModelTiles> && !amx_is_usable()) GTEST_SKIP() << "no AMX here";
    choose_matmul_kernels(kernels_);
  }
  void TearDown() override { choose_matmul_kernels(all_matmul_kernels()[0]); }

  // y[token][row] of tokens [first, first + count).
  static std::vector<float> product(const PackedMatrix& w, ThreadTeam& team,
                                    const std::vector<float>& x, int first, int count) {
    Input input(count, w.columns());
    const InputKind kind = w.input_kind(count);
    input.set(team, x.data() + first * w.columns(), w.columns(), count, w.columns(), {&kind, 1});
    std::vector<float> y(size_t(count * w.rows()));
    const Gemm gemm{.w = &w, .x = &input, .y = y.data(), .stride = w.rows()};
    multiply(team, {&gemm, 1});
    return y;
  }
  static std::vector<float> activations(int tokens, int64_t columns) {
    std::mt19937 random(5);
    std::vector<float> x(size_t(tokens * columns));
    for (float& value : x) value = std::normal_distribution<float>()(random);
    return x;
  }

  const MatmulKernels kernels_ = with_tiles(all_matmul_kernels()[0], AmxKernel<Tiles>::kernel());
};
TYPED_TEST_SUITE(AmxBlocksOn, AmxKinds);

// From 24 tokens on bit for bit the sums of the rounded operands, for one thread and two.
TYPED_TEST(AmxBlocksOn, ManyTokensAreTheTwinsBits) {
  ThreadTeam one(1), two(2);
  struct Shape {
    int64_t rows, columns;
    std::vector<int> tokens;
  };
  for (const Storage storage : kBlockStorages) {
    const int64_t block = storage_info(storage).block;
    const bool common = storage == Storage::q8_0 || storage == Storage::q4_0;
    std::vector<Shape> shapes = {{33, 3 * block, {24, 25, 31, 32, 33}}};
    if (common) shapes.push_back({17, 544, {255, 256, 257}});
    // Activations beyond 1 MB: one thread takes more rows at once, two do not.
    if (storage == Storage::q4_0) shapes.push_back({260, 4480, {120}});
    for (const auto& [rows, columns, counts] : shapes) {
      const BlockMatrix m = block_matrix(storage, rows, columns);
      const PackedMatrix packed(m.view, two);
      const std::vector<float> x = this->activations(counts.back(), columns);
      std::vector<uint16_t> rounded;
      for (const float value : x) rounded.push_back(f32_to_bf16(value));
      std::vector<float> want;
      const Layout layout = layout_of(storage);
      std::vector<std::vector<uint16_t>> w;
      std::vector<std::byte> group(size_t(group_bytes(layout, columns)));
      for (int64_t r = 0; r < rows; ++r) {
        if (r % kGroup == 0) pack_group(m.view, r / kGroup, group.data());
        w.push_back(packed_row(layout, group.data(), r % kGroup, columns));
      }
      for (int t = 0; t < counts.back(); ++t) {
        const auto token = std::span(rounded).subspan(size_t(t * columns), size_t(columns));
        for (int64_t r = 0; r < rows; ++r) want.push_back(tile_sum(w[size_t(r)], token));
      }
      for (const int count : counts) {
        ASSERT_EQ(packed.input_kind(count), InputKind::bf16);
        const std::vector<float> some(want.begin(), want.begin() + count * rows);
        ASSERT_EQ(this->product(packed, two, x, 0, count), some) << storage_info(storage).name;
        ASSERT_EQ(this->product(packed, one, x, 0, count), some) << storage_info(storage).name;
      }
    }
  }
}

// Below 24 tokens, and of an invariant matrix for any number, the integers' bits.
TYPED_TEST(AmxBlocksOn, FewTokensAndInvariantMatricesKeepTheIntegers) {
  ThreadTeam team(2);
  for (const Storage storage : kBlockStorages) {
    const int64_t rows = 21, columns = 2 * std::max<int64_t>(storage_info(storage).block, 64);
    const BlockMatrix m = block_matrix(storage, rows, columns);
    const PackedMatrix packed(m.view, team), invariant(m.view, team, true);
    const std::vector<float> x = this->activations(257, columns);
    const std::vector<float> all = this->product(invariant, team, x, 0, 257);
    for (int count = 1; count <= 33; ++count) {
      const std::vector<float> some(all.begin(), all.begin() + count * rows);
      ASSERT_EQ(this->product(invariant, team, x, 0, count), some);
      const std::vector<float> fast = this->product(packed, team, x, 0, count);
      ASSERT_EQ(fast == some, count < kTiledTokens) << storage_info(storage).name << ' ' << count;
    }
  }
}

// More than 2 MB of results go past the caches: the same bits as in parts, for rows of y that are
// whole lines and for others, and nothing beyond them.
TYPED_TEST(AmxBlocksOn, LargeResultsAreTheSameBits) {
  ThreadTeam team(2);
  const int64_t rows = 1033, columns = 64;
  const int tokens = 520;
  const BlockMatrix m = block_matrix(Storage::q8_0, rows, columns);
  const PackedMatrix packed(m.view, team);
  const std::vector<float> x = this->activations(tokens, columns);
  std::vector<float> want;
  for (int t = 0; t < tokens; t += 40) {
    const std::vector<float> some = this->product(packed, team, x, t, 40);
    want.insert(want.end(), some.begin(), some.end());
  }
  Input input(tokens, columns);
  const InputKind kind = packed.input_kind(tokens);
  input.set(team, x.data(), columns, tokens, columns, {&kind, 1});
  for (const auto& [stride, offset] : {std::pair<int64_t, size_t>{1040, 0}, {1040, 3}, {1033, 0}}) {
    constexpr float kSentinel = 12345;
    std::vector<float> memory(size_t(tokens * stride) + 64, kSentinel);
    const size_t aligned = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
    float* const y = memory.data() + aligned + offset;
    const Gemm gemm{.w = &packed, .x = &input, .y = y, .stride = stride};
    multiply(team, {&gemm, 1});
    for (int t = 0; t < tokens; ++t) {
      ASSERT_TRUE(std::equal(y + t * stride, y + t * stride + rows, want.begin() + t * rows)) << t;
      for (int64_t r = rows; r < stride; ++r) ASSERT_EQ(y[t * stride + r], kSentinel);
    }
  }
}

#if defined(__x86_64__)
TEST(AmxKernel, TransposesAsTheModelDoes) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "no AVX-512 here";
  std::vector<uint32_t> from(16 * 20);
  for (size_t i = 0; i < from.size(); ++i) from[i] = uint32_t(i);
  alignas(64) std::byte modelled[1024], own[1024];
  ModelTiles::transpose(reinterpret_cast<const std::byte*>(from.data()), 80, modelled);
  AmxTiles::transpose(reinterpret_cast<const std::byte*>(from.data()), 80, own);
  EXPECT_EQ(std::memcmp(modelled, own, sizeof own), 0);
}

TEST(AmxKernel, ModelledTilesHaveTheCpusBits) {
  if (!amx_is_usable()) GTEST_SKIP() << "no AMX here";
  AmxCase c(48, 800, 37);
  c.w[5] = 0x7f80, c.w[900] = 0x7fc0, c.w[2000] = 1, c.x[40] = 0x8001;  // inf, NaN, denormals
  const std::vector<float> modelled = by_panels<ModelTiles>(c, 64),
                           own = by_panels<AmxTiles>(c, 64);
  for (size_t i = 0; i < own.size(); ++i) {
    if (std::isnan(modelled[i])) {
      EXPECT_TRUE(std::isnan(own[i]));
    } else {
      EXPECT_EQ(modelled[i], own[i]) << i;
    }
  }
}
#endif

}  // namespace
}  // namespace ridge::cpu
