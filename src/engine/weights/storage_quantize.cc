// Quantizes floats into blocks as ggml's reference does: the largest magnitude determines the scale
// of the simple formats; the K formats search for the scale and min with the least weighted square
// error.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "engine/weights/storage.h"
#include "engine/weights/storage_blocks.h"

namespace ridge {

namespace {

// Clamps before rounding, so that no value (nor NaN) overflows the integer. Uses comparisons, not
// fmin, because each compiles to one instruction.
float clamped(float value, float low, float high) {
  const float below = value < high ? value : high;
  return below > low ? below : low;
}
// Rounds to the nearest integer, ties to even: below 2^22, + 1.5 * 2^23 leaves no fraction bits.
float nearest(float value, float low, float high) {
  constexpr float kShift = 0x1.8p23f;
  return (clamped(value, low, high) + kShift) - kShift;
}

float inverse(float d) { return d != 0 ? 1 / d : 0; }

float largest(const float* from, int count) {  // by magnitude, with the sign kept
  float most = 0;
  for (int i = 0; i < count; ++i) {
    if (std::fabs(from[i]) > std::fabs(most)) most = from[i];
  }
  return most;
}

void pack(const float* from, BlockQ8_0& block) {
  const float d = std::fabs(largest(from, 32)) / 127, id = inverse(d);
  block.d = f32_to_f16(d);
  for (int i = 0; i < 32; ++i) block.q[i] = int8_t(std::round(clamped(from[i] * id, -127, 127)));
}

// Packs two 4-bit integers into a byte and collects their fifth bits in `high`.
template <typename Block>
void put_bits(Block& block, int i, int q) {
  uint8_t& byte = block.q[i % 16];
  byte = i < 16 ? uint8_t(q & 15) : uint8_t(byte | (q & 15) << 4);
  if constexpr (requires { block.high; }) {
    if (i % 8 == 0) block.high[i / 8] = 0;
    block.high[i / 8] = uint8_t(block.high[i / 8] | (q >> 4) << (i % 8));
  }
}

// The largest magnitude becomes the most negative integer, because there is one more negative than
// positive integer.
template <typename Block>
void pack_signed(const float* from, Block& block, int zero) {
  const float d = largest(from, 32) / float(-zero), id = inverse(d);
  block.d = f32_to_f16(d);
  for (int i = 0; i < 32; ++i) {
    put_bits(block, i, int(clamped(from[i] * id + (float(zero) + 0.5f), 0, float(2 * zero - 1))));
  }
}
void pack(const float* from, BlockQ4_0& block) { pack_signed(from, block, 8); }
void pack(const float* from, BlockQ5_0& block) { pack_signed(from, block, 16); }

template <typename Block>
void pack_range(const float* from, Block& block, int steps) {
  const auto [low, high] = std::minmax_element(from, from + 32);
  const float d = (*high - *low) / float(steps), id = inverse(d), m = *low;
  block.d = f32_to_f16(d);
  block.m = f32_to_f16(m);
  for (int i = 0; i < 32; ++i) {
    put_bits(block, i, int(clamped((from[i] - m) * id + 0.5f, 0, float(steps))));
  }
}
void pack(const float* from, BlockQ4_1& block) { pack_range(from, block, 15); }
void pack(const float* from, BlockQ5_1& block) { pack_range(from, block, 31); }

// The exponent is the least with which the largest magnitude is at most 6; each element becomes the
// nearest of e2m1's numbers.
void pack(const float* from, BlockMxfp4& block) {
  const float peak = std::fabs(largest(from, 32));
  int exponent = 0;
  if (peak > 0 && std::isfinite(peak)) {
    std::frexp(peak / 6, &exponent);  // 2^(exponent - 1) <= peak / 6 < 2^exponent
    if (std::ldexp(6.0f, exponent - 1) >= peak) --exponent;
  }
  exponent = std::clamp(exponent, -126, kMostMxfp4Exponent - 127);
  block.exponent = uint8_t(exponent + 127);
  const float inverse_scale = std::ldexp(2.0f, -exponent);  // of twice the numbers
  for (int i = 0; i < 32; ++i) {
    const float size = clamped(std::fabs(from[i]) * inverse_scale, 0, 12);
    int code = 0;
    for (int level = 1; level < 8; ++level) {
      if (std::fabs(size - float(kTwiceFp4[level])) < std::fabs(size - float(kTwiceFp4[code]))) {
        code = level;
      }
    }
    put_bits(block, i, from[i] < 0 ? code | 8 : code);
  }
}

struct Fit {
  float scale = 0, min = 0;  // x ~ scale q - min, both at least 0
};

// Sums 32 terms in eight lanes, which compilers keep in vector registers.
template <typename Term>
float sum_of(Term term) {
  constexpr int kLanes = 8;
  float lanes[kLanes] = {};
  for (int i = 0; i < 32; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// Scale and min of 32 numbers. For each of several slightly larger and smaller scales: round, then
// solve the weighted least squares for scale and min at those integers; the best fit is kept.
// Larger numbers have more weight, as in ggml (|x| + root mean square).
Fit fit_range(const float* from, int steps, float first, int tries) {
  constexpr int kCount = 32;
  const float root = std::sqrt(sum_of([&](int i) { return from[i] * from[i]; }) / kCount);
  float weight[kCount], q[kCount];
  for (int i = 0; i < kCount; ++i) weight[i] = root + std::fabs(from[i]);
  const float sum_w = sum_of([&](int i) { return weight[i]; });
  const float sum_x = sum_of([&](int i) { return weight[i] * from[i]; });
  const auto [lowest, highest] = std::minmax_element(from, from + kCount);
  const float low = std::min(0.0f, *lowest), range = *highest - low;
  if (!(range > 0)) return {0, -low};
  const float most = float(steps);
  auto round = [&](float inverse_scale) {
    for (int i = 0; i < kCount; ++i) q[i] = nearest(inverse_scale * (from[i] - low), 0, most);
  };
  auto error = [&](float scale, float min) {
    return sum_of([&](int i) {
      const float difference = scale * q[i] + min - from[i];
      return weight[i] * difference * difference;
    });
  };
  Fit best{range / most, -low};
  round(most / range);
  float least = error(best.scale, low);
  for (int step = 0; step <= tries; ++step) {
    round((first + 0.1f * float(step) + most) / range);
    const float sum_q = sum_of([&](int i) { return weight[i] * q[i]; });
    const float sum_qq = sum_of([&](int i) { return weight[i] * q[i] * q[i]; });
    const float sum_xq = sum_of([&](int i) { return weight[i] * q[i] * from[i]; });
    const float determinant = sum_w * sum_qq - sum_q * sum_q;
    if (!(determinant > 0)) continue;
    float scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
    float min = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
    if (min > 0) {
      min = 0;
      scale = sum_xq / sum_qq;
    }
    const float found = error(scale, min);
    if (found < least) {
      least = found;
      best = {scale, -min};
    }
  }
  return best;
}

// Computes d, dmin and the 6-bit scales from eight fits; passes each integer to `put`.
template <typename Block, typename Put>
void pack_k(const float* from, Block& block, int steps, float first, int tries, Put put) {
  Fit fits[8];
  float most_scale = 0, most_min = 0;
  for (int g = 0; g < 8; ++g) {
    fits[g] = fit_range(from + g * 32, steps, first, tries);
    most_scale = std::max(most_scale, fits[g].scale);
    most_min = std::max(most_min, fits[g].min);
  }
  std::memset(&block, 0, sizeof(block));
  block.d = f32_to_f16(most_scale / 63);
  block.dmin = f32_to_f16(most_min / 63);
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin pair{uint8_t(nearest(fits[g].scale * (63 * inverse(most_scale)), 0, 63)),
                        uint8_t(nearest(fits[g].min * (63 * inverse(most_min)), 0, 63))};
    set_scale_min(block.scales, g, pair);
    // The integers are rounded again with the stored scale.
    const float scale = d * float(pair.scale), min = dmin * float(pair.min), id = inverse(scale);
    for (int i = 0; i < 32; ++i) {
      put(g, i, int(nearest((from[g * 32 + i] + min) * id, 0, float(steps))));
    }
  }
}

void pack(const float* from, BlockQ4K& block) {
  pack_k(from, block, 15, -1.0f, 20,
         [&](int g, int i, int q) { block.q[g / 2 * 32 + i] |= uint8_t(q << (g % 2 * 4)); });
}

void pack(const float* from, BlockQ5K& block) {
  pack_k(from, block, 31, -0.5f, 15, [&](int g, int i, int q) {
    block.q[g / 2 * 32 + i] |= uint8_t((q & 15) << (g % 2 * 4));
    block.high[i] |= uint8_t(q >> 4 << g);
  });
}

// The scale of 16 numbers in -32..31. Tries 19 scales around the one that makes the largest
// magnitude exact and keeps the one with the least error weighted by x squared.
float fit_signed(const float* from) {
  const float most = largest(from, 16);
  if (most == 0) return 0;
  float best_scale = 0, best = -1;
  for (int step = -9; step <= 9; ++step) {
    const float inverse_scale = -(32 + 0.1f * float(step)) / most;
    float sum_xq = 0, sum_qq = 0;
    for (int i = 0; i < 16; ++i) {
      const float q = nearest(inverse_scale * from[i], -32, 31), w = from[i] * from[i];
      sum_xq += w * from[i] * q;
      sum_qq += w * q * q;
    }
    if (sum_qq > 0 && sum_xq * sum_xq > best * sum_qq) {
      best_scale = sum_xq / sum_qq;
      best = best_scale * sum_xq;
    }
  }
  return best_scale;
}

void pack(const float* from, BlockQ6K& block) {
  float scales[16];
  for (int g = 0; g < 16; ++g) scales[g] = fit_signed(from + g * 16);
  const float most = largest(scales, 16);
  std::memset(&block, 0, sizeof(block));
  block.d = f32_to_f16(most / -128);
  const float d = f16_to_f32(block.d);
  for (int g = 0; g < 16; ++g) {
    block.scales[g] = int8_t(nearest(scales[g] * inverse(most / -128), -128, 127));
    const float id = inverse(d * float(block.scales[g]));
    for (int i = 0; i < 16; ++i) {
      const int at = g * 16 + i, half = at / 128, quarter = at % 128 / 32, place = at % 32;
      const int q = int(nearest(from[at] * id, -32, 31)) + 32;
      block.low[half * 64 + quarter % 2 * 32 + place] |= uint8_t((q & 15) << (quarter / 2 * 4));
      block.high[half * 32 + place] |= uint8_t(q >> 4 << (quarter * 2));
    }
  }
}

void pack(const float* from, BlockFp8& block) {
  block.d = std::fabs(largest(from, 128)) / kMostE4m3;
  const float id = inverse(block.d);
  for (int i = 0; i < 128; ++i) block.q[i] = f32_to_e4m3(from[i] * id);
}

template <typename Block>
void pack_all(const float* from, int64_t count, std::byte* to, int elements) {
  for (int64_t i = 0; i < count / elements; ++i) {
    Block block;
    pack(from + i * elements, block);
    std::memcpy(to + i * int64_t{sizeof(Block)}, &block, sizeof(Block));
  }
}

template <uint16_t (*Convert)(float)>
void narrow(const float* from, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = Convert(from[i]);
    std::memcpy(to + 2 * i, &bits, 2);
  }
}

}  // namespace

void quantize(Storage storage, const float* from, int64_t count, std::byte* to) {
  assert(count % storage_info(storage).block == 0);
  switch (storage) {
    case Storage::f32:
      if (count > 0) std::memcpy(to, from, size_t(count) * 4);
      return;
    case Storage::f16:
      return narrow<f32_to_f16>(from, count, to);
    case Storage::bf16:
      return narrow<f32_to_bf16>(from, count, to);
    case Storage::q8_0:
      return pack_all<BlockQ8_0>(from, count, to, 32);
    case Storage::q4_0:
      return pack_all<BlockQ4_0>(from, count, to, 32);
    case Storage::q4_1:
      return pack_all<BlockQ4_1>(from, count, to, 32);
    case Storage::q5_0:
      return pack_all<BlockQ5_0>(from, count, to, 32);
    case Storage::q5_1:
      return pack_all<BlockQ5_1>(from, count, to, 32);
    case Storage::q4_k:
      return pack_all<BlockQ4K>(from, count, to, 256);
    case Storage::q5_k:
      return pack_all<BlockQ5K>(from, count, to, 256);
    case Storage::q6_k:
      return pack_all<BlockQ6K>(from, count, to, 256);
    case Storage::mxfp4:
      return pack_all<BlockMxfp4>(from, count, to, 32);
    case Storage::fp8:
      return pack_all<BlockFp8>(from, count, to, 128);
    case Storage::kCount:
      break;
  }
  assert(false);
}

}  // namespace ridge
