// Elements of a KV page (tiles.cuh): quantization, dequantization, and writing one token's key and
// value.
#pragma once

#include <cuda_fp8.h>

#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/layout/head_vector.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// Two elements of a page of bytes as f16, without their scale. int8: `word` has 128 added to each
// byte.
template <KvFormat kFormat, int kHalf>
__device__ inline uint32_t dequantize_pair(uint32_t word) {
  if constexpr (kFormat == KvFormat::fp8) {
    return fp8_pair<kHalf>(word);  // shifting the bits was slower
  } else {
    // 0x6400 is 1024 in f16, whose last mantissa bit is 1: the byte becomes 1024 + 128 + q.
    const uint32_t pair = __byte_perm(word, 0x64646464u, kHalf ? 0x4342 : 0x4140);
    const uint32_t offset = 0x64806480u;  // 1024 + 128
    const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&pair),
                                  *reinterpret_cast<const __half2*>(&offset));
    return *reinterpret_cast<const uint32_t*>(&value);
  }
}

// Of a vector in a page of bytes: the scale that is stored, and the factor that converts its
// elements to bytes.
struct Quantization {
  float scale, factor;
};
// From the vector's largest magnitude. 1e-35: the factor must be finite.
template <KvFormat kFormat>
__device__ inline Quantization quantization(float magnitude) {
  constexpr float kLargest = kFormat == KvFormat::fp8 ? 448 : 127;
  return magnitude > 1e-35f ? Quantization{magnitude / kLargest, kLargest / magnitude}
                            : Quantization{0, 0};
}

// Two elements as the cache holds them, in the low 16 or 32 bits. Bytes: already multiplied with
// the factor of quantization().
template <KvFormat kFormat>
__device__ inline uint32_t quantize_pair(float low, float high) {
  if constexpr (kFormat == KvFormat::bf16) {
    return pack_bf16(low, high);
  } else if constexpr (kFormat == KvFormat::f16) {
    return pack_f16(fmaxf(-65504.0f, fminf(low, 65504.0f)),
                    fmaxf(-65504.0f, fminf(high, 65504.0f)));
  } else if constexpr (kFormat == KvFormat::fp8) {
    // One instruction from Ada on, emulated before.
    return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
  } else {
    return (__float2int_rn(low) & 0xff) | (__float2int_rn(high) & 0xff) << 8;
  }
}

// Writes the quad's key into its slot of `page` in shared memory and, if not null, of `cached` in
// the cache. All lanes call it; `valid`: whether this quad has a key.
template <int kD, KvFormat kFormat>
__device__ inline void write_key(const HeadVector<kD>& key, bool valid, int slot, int t,
                                 uint8_t* page, uint8_t* cached) {
  constexpr int kHeadDim = 16 * kD;
  Quantization quantized = {1, 1};
  if constexpr (kv_bytes(kFormat)) quantized = quantization<kFormat>(max_magnitude<kD>(key));
  if (!valid) return;
  const auto store = [&](auto value, int at) {
    *reinterpret_cast<decltype(value)*>(page + at) = value;
    if (cached) *reinterpret_cast<decltype(value)*>(cached + at) = value;
  };
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 v = key[j][h];
      if constexpr (kv_bytes(kFormat)) {
        store(static_cast<uint16_t>(
                  quantize_pair<kFormat>(v.x * quantized.factor, v.y * quantized.factor)),
              key_byte(slot, t * 2) + key_byte(0, j * 16 + h * 8));
      } else {
        store(quantize_pair<kFormat>(v.x, v.y),
              2 * (key_at(slot, t * 2, kHeadDim) + key_at(0, j * 16 + h * 8, kHeadDim)));
      }
    }
  }
  if (kv_bytes(kFormat) && t == 0) store(quantized.scale, key_scale_byte(slot, kHeadDim));
}

// Writes a value, of which lane l holds elements l + 32 i.
template <int kD, KvFormat kFormat>
__device__ inline void write_value(const float (&value)[kD / 2], int slot, int lane, uint8_t* page,
                                   uint8_t* cached) {
  constexpr int kHeadDim = 16 * kD;
  Quantization quantized = {1, 1};
  if constexpr (kv_bytes(kFormat)) {
    float magnitude = 0;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) magnitude = fmaxf(magnitude, fabsf(value[i]));
    magnitude = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(magnitude)));
    quantized = quantization<kFormat>(magnitude);
  }
  const auto store = [&](auto bits, int at) {
    *reinterpret_cast<decltype(bits)*>(page + at) = bits;
    if (cached) *reinterpret_cast<decltype(bits)*>(cached + at) = bits;
  };
#pragma unroll
  for (int i = 0; i < kD / 2; ++i) {
    if constexpr (kv_bytes(kFormat)) {
      store(static_cast<uint8_t>(quantize_pair<kFormat>(value[i] * quantized.factor, 0)),
            value_byte(slot, lane, kHeadDim) + i * 512);
    } else {
      store(static_cast<uint16_t>(quantize_pair<kFormat>(value[i], 0)),
            2 * (value_at(slot, lane, kHeadDim) + i * 256));
    }
  }
  if (kv_bytes(kFormat) && lane == 0) store(quantized.scale, value_scale_byte(slot, kHeadDim));
}

}  // namespace ridge::cuda
