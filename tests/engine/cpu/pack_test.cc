#include "engine/cpu/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace ridge::cpu {
namespace {

// Row r, column c of a packed group, by the words of pack.h.
float unpacked(Layout layout, const std::byte* group, int r, int64_t c) {
  const LayoutInfo info = layout_info(layout);
  const std::byte* const pair = group + c / 64 * info.pair_bytes();
  const int second = static_cast<int>(c / 32 % 2), i = static_cast<int>(c % 32);
  const auto half_float = [&](const std::byte* at) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return f16_to_f32(bits);
  };
  const float scale = half_float(pair + second * info.scale_bytes() +
                                 (i / info.columns_per_scale * kGroup + r) * 2);
  const float min =
      info.min ? half_float(pair + 2 * info.scale_bytes() + second * info.min_bytes() + r * 2) : 0;
  const std::byte* const data =
      pair + 2 * (info.scale_bytes() + info.min_bytes()) + second * info.data_bytes();
  const int chunk = info.stored_bits == 8 ? i / 4 : i % 16 / 4;
  int q = std::to_integer<int>(data[(chunk * kGroup + r) * 4 + i % 4]);
  if (info.stored_bits == 4) q = i < 16 ? q & 15 : q >> 4;
  if (layout == Layout::fp4) q = kFp4Levels[q];
  EXPECT_LT(q, 1 << info.value_bits);
  return scale * static_cast<float>(q - info.offset) + min;
}

// Exact but for the K formats, whose products of two scales are rounded to f16: 2^-11 of each of
// the two terms, or half a step of the smallest numbers (2^-25) times q.
TEST(Pack, KeepsEveryWeight) {
  std::mt19937 random(1);
  for (int s = 3; s < kStorageCount; ++s) {
    const auto storage = static_cast<Storage>(s);
    const Layout layout = layout_of(storage);
    if (layout == Layout::plain) continue;
    const bool rounded =
        storage == Storage::q4_k || storage == Storage::q5_k || storage == Storage::q6_k;
    for (const int64_t rows : {1, 16, 21}) {
      for (const int64_t columns : {256, 768}) {
        const size_t bytes = storage_bytes(storage, columns);
        std::vector<std::byte> data(bytes * static_cast<size_t>(rows));
        for (std::byte& b : data) b = std::byte(random());
        // Random scales would be infinite now and then: bit 14 of an f16 is its exponent's top.
        const size_t block_bytes = static_cast<size_t>(storage_info(storage).bytes);
        for (size_t at = 0; at < data.size(); at += block_bytes) {
          if (storage == Storage::mxfp4) {
            data[at] = std::byte(104 + random() % 152);  // what f16 holds exactly, or saturates
          } else if (storage == Storage::q6_k) {
            data[at + block_bytes - 1] &= std::byte{0xbf};
          } else {
            data[at + 1] &= std::byte{0xbf};
            data[at + 3] &= std::byte{0xbf};
          }
        }
        const Matrix matrix{storage, rows, columns, data.data(), static_cast<int64_t>(bytes)};
        std::vector<float> row(static_cast<size_t>(columns));
        for (int64_t g = 0; g < group_count(rows); ++g) {
          std::vector<std::byte> packed(static_cast<size_t>(group_bytes(layout, columns)),
                                        std::byte{0xff});
          pack_group(matrix, g, packed.data());
          for (int r = 0; r < kGroup; ++r) {
            const bool real = g * kGroup + r < rows;
            if (real) dequantize(storage, matrix.row(g * kGroup + r), columns, row.data());
            for (int64_t c = 0; c < columns; ++c) {
              const float got = unpacked(layout, packed.data(), r, c);
              const float want = real ? row[static_cast<size_t>(c)] : 0;
              // Random scales are below 2 and their factors below 128, so each of the terms is
              // below 2 x 128 x 64, and mostly far below.
              const float bound = rounded ? std::ldexp(2.f * 128 * 64, -11) : 0;
              if (rounded) {
                ASSERT_NEAR(got, want, bound) << storage_info(storage).name << ' ' << r << ' ' << c;
              } else {
                ASSERT_FLOAT_EQ(got, want) << storage_info(storage).name << ' ' << r << ' ' << c;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Pack, TakesTheSourcesBytes) {
  EXPECT_EQ(group_bytes(Layout::q8, 2048), 16 * int64_t(storage_bytes(Storage::q8_0, 2048)));
  EXPECT_EQ(group_bytes(Layout::q4, 2048), 16 * int64_t(storage_bytes(Storage::q4_0, 2048)));
  EXPECT_EQ(group_bytes(Layout::q4_min, 2048), 16 * int64_t(storage_bytes(Storage::q4_1, 2048)));
}

}  // namespace
}  // namespace ridge::cpu
