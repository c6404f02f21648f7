#include "engine/cpu/pack.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "engine/weights/storage_blocks.h"

namespace ridge::cpu {
namespace {

// 32 columns of one row as the layout stores them: 4-bit layouts use 16 of the bytes.
struct Block {
  uint16_t scale[2] = {0, 0}, min = 0;
  uint8_t q[kBlock] = {};
};

template <typename Source>
Source read(const std::byte* from) {
  Source source;
  std::memcpy(&source, from, sizeof source);
  return source;
}

// The fifth bit of element i, moved to bit 4.
uint8_t fifth(const uint8_t (&high)[4], int i) {
  return static_cast<uint8_t>((high[i / 8] >> (i % 8) & 1) << 4);
}

template <typename Source>
void widen_five(const Source& source, Block& to) {
  for (int i = 0; i < 16; ++i) {
    to.q[i] = static_cast<uint8_t>((source.q[i] & 15) | fifth(source.high, i));
    to.q[i + 16] = static_cast<uint8_t>((source.q[i] >> 4) | fifth(source.high, i + 16));
  }
}

// d s and -dmin m of the g-th group of 32, rounded to f16: 11 bits, finer than the 6 of s.
template <typename Source>
void scale_k(const Source& source, int g, Block& to) {
  const ScaleMin sm = scale_min(source.scales, g);
  to.scale[0] = f32_to_f16(f16_to_f32(source.d) * sm.scale);
  to.min = f32_to_f16(-f16_to_f32(source.dmin) * sm.min);
}

void get_q8_0(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ8_0>(row + block * int64_t{sizeof(BlockQ8_0)});
  to.scale[0] = source.d;
  for (int i = 0; i < kBlock; ++i) to.q[i] = static_cast<uint8_t>(source.q[i] ^ 0x80);
}

void get_q4_0(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ4_0>(row + block * int64_t{sizeof(BlockQ4_0)});
  to.scale[0] = source.d;
  std::memcpy(to.q, source.q, 16);
}

void get_q4_1(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ4_1>(row + block * int64_t{sizeof(BlockQ4_1)});
  to.scale[0] = source.d;
  to.min = source.m;
  std::memcpy(to.q, source.q, 16);
}

void get_q5_0(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ5_0>(row + block * int64_t{sizeof(BlockQ5_0)});
  to.scale[0] = source.d;
  widen_five(source, to);
}

void get_q5_1(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ5_1>(row + block * int64_t{sizeof(BlockQ5_1)});
  to.scale[0] = source.d;
  to.min = source.m;
  widen_five(source, to);
}

void get_q4_k(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ4K>(row + block / 8 * int64_t{sizeof(BlockQ4K)});
  const int g = static_cast<int>(block % 8);
  scale_k(source, g, to);
  const uint8_t* const q = source.q + g / 2 * 32;
  const int shift = g % 2 * 4;
  for (int i = 0; i < 16; ++i) {
    to.q[i] = static_cast<uint8_t>((q[i] >> shift & 15) | (q[i + 16] >> shift & 15) << 4);
  }
}

void get_q5_k(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ5K>(row + block / 8 * int64_t{sizeof(BlockQ5K)});
  const int g = static_cast<int>(block % 8);
  scale_k(source, g, to);
  const uint8_t* const q = source.q + g / 2 * 32;
  const int shift = g % 2 * 4;
  for (int i = 0; i < kBlock; ++i) {
    to.q[i] = static_cast<uint8_t>((q[i] >> shift & 15) | (source.high[i] >> g & 1) << 4);
  }
}

// ggml's order: a half has 128 elements. low[l] and low[l + 32] hold elements l, l + 32 in their
// low nibbles and l + 64, l + 96 in their high nibbles; each of the four takes two bits of high[l].
void get_q6_k(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockQ6K>(row + block / 8 * int64_t{sizeof(BlockQ6K)});
  const int g = static_cast<int>(block % 8), half = g / 4, quarter = g % 4;
  const uint8_t* const low = source.low + half * 64 + quarter % 2 * 32;
  const uint8_t* const high = source.high + half * 32;
  for (int i = 0; i < kBlock; ++i) {
    to.q[i] = static_cast<uint8_t>((low[i] >> (quarter / 2 * 4) & 15) |
                                   (high[i] >> (quarter * 2) & 3) << 4);
  }
  const float d = f16_to_f32(source.d);
  to.scale[0] = f32_to_f16(d * source.scales[2 * g]);
  to.scale[1] = f32_to_f16(d * source.scales[2 * g + 1]);
}

// Powers of two from 2^-24 to 2^15 are exact in f16: an exponent below 104 is not, and no released
// model has one.
void get_mxfp4(const std::byte* row, int64_t block, Block& to) {
  const auto source = read<BlockMxfp4>(row + block * int64_t{sizeof(BlockMxfp4)});
  to.scale[0] = f32_to_f16(half_scale(source));
  std::memcpy(to.q, source.q, 16);
}

using Get = void (*)(const std::byte* row, int64_t block, Block& to);

Get get_of(Storage storage) {
  switch (storage) {
    case Storage::q4_0:
      return get_q4_0;
    case Storage::q4_1:
      return get_q4_1;
    case Storage::q5_0:
      return get_q5_0;
    case Storage::q5_1:
      return get_q5_1;
    case Storage::q4_k:
      return get_q4_k;
    case Storage::q5_k:
      return get_q5_k;
    case Storage::q6_k:
      return get_q6_k;
    case Storage::mxfp4:
      return get_mxfp4;
    default:
      return get_q8_0;
  }
}

}  // namespace

Layout layout_of(Storage storage) {
  switch (storage) {
    case Storage::q8_0:
      return Layout::q8;
    case Storage::q4_0:
      return Layout::q4;
    case Storage::q4_1:
    case Storage::q4_k:
      return Layout::q4_min;
    case Storage::q5_0:
      return Layout::q5;
    case Storage::q5_1:
    case Storage::q5_k:
      return Layout::q5_min;
    case Storage::q6_k:
      return Layout::q6;
    case Storage::mxfp4:
      return Layout::fp4;
    default:
      return Layout::plain;
  }
}

void pack_group(const Matrix& matrix, int64_t group, std::byte* to) {
  const LayoutInfo info = layout_info(layout_of(matrix.storage));
  const Get get = get_of(matrix.storage);
  const int64_t first = group * kGroup, blocks = matrix.columns / kBlock;
  const int rows = static_cast<int>(std::min<int64_t>(kGroup, matrix.rows - first));
  const int words = info.data_bytes() / kGroup / 4;  // 32-bit words of a row in a block
  assert(rows > 0 && matrix.columns % kBlock == 0);
  for (int64_t block = 0; block < blocks; ++block) {
    std::byte* const pair = to + block / 2 * info.pair_bytes();
    const int64_t second = block % 2;
    std::byte* const scales = pair + second * info.scale_bytes();
    std::byte* const mins = pair + 2 * info.scale_bytes() + second * info.min_bytes();
    std::byte* const data =
        pair + 2 * (info.scale_bytes() + info.min_bytes()) + second * info.data_bytes();
    if (rows < kGroup) {
      std::memset(scales, 0, static_cast<size_t>(info.scale_bytes()));
      std::memset(mins, 0, static_cast<size_t>(info.min_bytes()));
      std::memset(data, 0, static_cast<size_t>(info.data_bytes()));
    }
    for (int r = 0; r < rows; ++r) {
      Block row;
      get(matrix.row(first + r), block, row);
      for (int s = 0; s < kBlock / info.columns_per_scale; ++s) {
        std::memcpy(scales + (s * kGroup + r) * 2, &row.scale[s], 2);
      }
      if (info.min) std::memcpy(mins + r * 2, &row.min, 2);
      for (int j = 0; j < words; ++j) {
        std::memcpy(data + (j * kGroup + r) * 4, row.q + 4 * j, 4);
      }
    }
  }
}

}  // namespace ridge::cpu
