// Memory layout of ggml's blocks, and of fp8's. Blocks are copied out before use, so files may
// place them at any address.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ridge {

struct BlockQ8_0 {
  uint16_t d;
  int8_t q[32];
};
struct BlockQ4_0 {
  uint16_t d;
  uint8_t q[16];  // low nibbles: elements 0..15, high nibbles: 16..31
};
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t q[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t high[4];  // bit i: the fifth bit of element i
  uint8_t q[16];
};
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t high[4];
  uint8_t q[16];
};
struct BlockMxfp4 {
  uint8_t exponent;
  uint8_t q[16];  // as BlockQ4_0
};
// The numbers of e2m1, doubled: sign, two bits of exponent, one of mantissa.
inline constexpr int8_t kTwiceFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Half the scale of a block, for kTwiceFp4. Kernels keep it in f16, which ends at 2^16: exponents
// above 143 count as 143, so that no weight is infinite.
inline constexpr int kMostMxfp4Exponent = 143;
inline float half_scale(const BlockMxfp4& block) {
  return std::ldexp(0.5f, std::min<int>(block.exponent, kMostMxfp4Exponent) - 127);
}
struct BlockFp8 {
  float d;
  uint8_t q[128];
};
struct BlockQ4K {
  uint16_t d, dmin;
  uint8_t scales[12];  // eight 6-bit scales and mins, see scale_min
  uint8_t q[128];      // four groups of 64: low nibbles the first 32, high nibbles the second
};
struct BlockQ5K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t high[32];  // bit g of byte i: the fifth bit of element i of the g-th 32
  uint8_t q[128];
};
struct BlockQ6K {
  uint8_t low[128];   // two halves of 128 elements: 64 bytes each
  uint8_t high[64];   // two bits per element
  int8_t scales[16];  // one per 16 elements
  uint16_t d;
};
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockQ4K) == 144);
static_assert(sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210 && sizeof(BlockMxfp4) == 17);
static_assert(sizeof(BlockFp8) == 132);

struct ScaleMin {
  uint8_t scale, min;
};

// Scale and min of the g-th group of 32 (of eight): the first four groups have their 6 bits in one
// byte; the last four keep 4 bits in the last bytes and 2 in the top bits of the first eight bytes.
inline ScaleMin scale_min(const uint8_t* scales, int g) {
  if (g < 4) return {uint8_t(scales[g] & 63), uint8_t(scales[g + 4] & 63)};
  return {uint8_t((scales[g + 4] & 15) | (scales[g - 4] >> 6 << 4)),
          uint8_t((scales[g + 4] >> 4) | (scales[g] >> 6 << 4))};
}

inline void set_scale_min(uint8_t* scales, int g, ScaleMin value) {
  if (g < 4) {
    scales[g] = value.scale;
    scales[g + 4] = value.min;
  } else {
    scales[g + 4] = uint8_t((value.scale & 15) | (value.min & 15) << 4);
    scales[g - 4] |= uint8_t(value.scale >> 4 << 6);
    scales[g] |= uint8_t(value.min >> 4 << 6);
  }
}

}  // namespace ridge
