// Memory layout of ggml's blocks. Members need no alignment beyond the two bytes of a scale, and
// blocks are copied out before use, so files may place them at any address.
#pragma once

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
static_assert(sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210);

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
