#include "engine/weights/storage.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "engine/weights/storage_blocks.h"

namespace ridge {

namespace {

constexpr std::array<StorageInfo, kStorageCount> kInfos = {{
    {"fp32", 1, 4},
    {"fp16", 1, 2},
    {"bf16", 1, 2},
    {"q8_0", 32, 34},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q4_k", 256, 144},
    {"q5_k", 256, 176},
    {"q6_k", 256, 210},
    {"mxfp4", 32, 17},
    {"fp8", 128, 132},
}};

}  // namespace

const StorageInfo& storage_info(Storage storage) {
  assert(storage < Storage::kCount);
  return kInfos[size_t(storage)];
}

Storage storage_from_name(std::string_view name) {
  if (name == "f32") return Storage::f32;
  if (name == "f16") return Storage::f16;
  std::string names;
  for (int i = 0; i < kStorageCount; ++i) {
    if (kInfos[size_t(i)].name == name) return Storage(i);
    names += (names.empty() ? "" : ", ") + std::string(kInfos[size_t(i)].name);
  }
  throw Error("weights are stored as one of {}, not \"{}\"", names, name.substr(0, 40));
}

size_t storage_bytes(Storage storage, int64_t count) {
  const StorageInfo& info = storage_info(storage);
  assert(count >= 0 && count % info.block == 0);
  return size_t(count / info.block) * size_t(info.bytes);
}

float e4m3_to_f32(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(float(mantissa), -9)
                                        : std::ldexp(float(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}

uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = uint8_t(bits >> 24 & 0x80);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7f;
  if (std::bit_cast<float>(magnitude) >= kMostE4m3) return sign | 0x7e;
  if (magnitude < 0x3c800000) {
    // Below 2^-6: adding 2^14 rounds to a multiple of 2^-9, the subnormals' step.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return uint8_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000));
  }
  magnitude += 0x7ffff + (magnitude >> 20 & 1);
  return uint8_t(sign | (magnitude - 0x3c000000) >> 20);
}

namespace {

void unpack(const BlockQ8_0& block, float* to) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) to[i] = d * float(block.q[i]);
}

void unpack(const BlockQ4_0& block, float* to) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    to[i] = d * float((block.q[i] & 15) - 8);
    to[i + 16] = d * float((block.q[i] >> 4) - 8);
  }
}

void unpack(const BlockQ4_1& block, float* to) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  for (int i = 0; i < 16; ++i) {
    to[i] = d * float(block.q[i] & 15) + m;
    to[i + 16] = d * float(block.q[i] >> 4) + m;
  }
}

// The 5-bit integer of element i.
template <typename Block>
int five_bits(const Block& block, int i) {
  const int low = i < 16 ? block.q[i] & 15 : block.q[i - 16] >> 4;
  return low | (block.high[i / 8] >> (i % 8) & 1) << 4;
}

void unpack(const BlockQ5_0& block, float* to) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) to[i] = d * float(five_bits(block, i) - 16);
}

void unpack(const BlockQ5_1& block, float* to) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  for (int i = 0; i < 32; ++i) to[i] = d * float(five_bits(block, i)) + m;
}

void unpack(const BlockQ4K& block, float* to) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin pair = scale_min(block.scales, g);
    const float scale = d * float(pair.scale), min = dmin * float(pair.min);
    const uint8_t* q = block.q + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) *to++ = scale * float(q[i] >> shift & 15) - min;
  }
}

void unpack(const BlockQ5K& block, float* to) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin pair = scale_min(block.scales, g);
    const float scale = d * float(pair.scale), min = dmin * float(pair.min);
    const uint8_t* q = block.q + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      *to++ = scale * float((q[i] >> shift & 15) | (block.high[i] >> g & 1) << 4) - min;
    }
  }
}

void unpack(const BlockQ6K& block, float* to) {
  const float d = f16_to_f32(block.d);
  for (int g = 0; g < 8; ++g) {  // 32 elements: a quarter of a half block
    const int half = g / 4, quarter = g % 4;
    const uint8_t* low = block.low + half * 64 + quarter % 2 * 32;
    const uint8_t* high = block.high + half * 32;
    for (int i = 0; i < 32; ++i) {
      const int q = (low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (quarter * 2) & 3) << 4;
      *to++ = d * float(block.scales[g * 2 + i / 16]) * float(q - 32);
    }
  }
}

void unpack(const BlockMxfp4& block, float* to) {
  const float d = half_scale(block);
  for (int i = 0; i < 16; ++i) {
    to[i] = d * float(kTwiceFp4[block.q[i] & 15]);
    to[i + 16] = d * float(kTwiceFp4[block.q[i] >> 4]);
  }
}

void unpack(const BlockFp8& block, float* to) {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) values[size_t(i)] = e4m3_to_f32(uint8_t(i));
    return values;
  }();
  for (int i = 0; i < 128; ++i) to[i] = block.d * kValues[block.q[i]];
}

template <typename Block>
void unpack_all(const std::byte* from, int64_t count, float* to, int elements) {
  for (int64_t i = 0; i < count / elements; ++i) {
    Block block;
    std::memcpy(&block, from + i * int64_t{sizeof(Block)}, sizeof(Block));
    unpack(block, to + i * elements);
  }
}

template <float (*Convert)(uint16_t)>
void widen(const std::byte* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = Convert(bits);
  }
}

}  // namespace

void dequantize(Storage storage, const std::byte* from, int64_t count, float* to) {
  assert(count % storage_info(storage).block == 0);
  switch (storage) {
    case Storage::f32:
      if (count > 0) std::memcpy(to, from, size_t(count) * 4);
      return;
    case Storage::f16:
      return widen<f16_to_f32>(from, count, to);
    case Storage::bf16:
      return widen<bf16_to_f32>(from, count, to);
    case Storage::q8_0:
      return unpack_all<BlockQ8_0>(from, count, to, 32);
    case Storage::q4_0:
      return unpack_all<BlockQ4_0>(from, count, to, 32);
    case Storage::q4_1:
      return unpack_all<BlockQ4_1>(from, count, to, 32);
    case Storage::q5_0:
      return unpack_all<BlockQ5_0>(from, count, to, 32);
    case Storage::q5_1:
      return unpack_all<BlockQ5_1>(from, count, to, 32);
    case Storage::q4_k:
      return unpack_all<BlockQ4K>(from, count, to, 256);
    case Storage::q5_k:
      return unpack_all<BlockQ5K>(from, count, to, 256);
    case Storage::q6_k:
      return unpack_all<BlockQ6K>(from, count, to, 256);
    case Storage::mxfp4:
      return unpack_all<BlockMxfp4>(from, count, to, 32);
    case Storage::fp8:
      return unpack_all<BlockFp8>(from, count, to, 128);
    case Storage::kCount:
      break;
  }
  assert(false);
}

}  // namespace ridge
