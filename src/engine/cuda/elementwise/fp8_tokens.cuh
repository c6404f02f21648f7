// Quantization of activations to E4M3.
#pragma once

#include "engine/cuda/layout/kv_page.cuh"

namespace ridge::cuda {

// Largest magnitude of eight bf16 in each half, as bits: they order like the values.
__device__ inline uint32_t magnitudes(uint4 v) {
  constexpr uint32_t kNoSign = 0x7fff7fffu;
  return max_u16x2(max_u16x2(v.x & kNoSign, v.y & kNoSign),
                   max_u16x2(v.z & kNoSign, v.w & kNoSign));
}

// Columns 0 to 7 and 8 to 15 of a token times `factor` (quantization() of kv_page.cuh), in the
// order of fp8_column().
__device__ inline uint4 quantize_16(uint4 low, uint4 high, float factor) {
  const auto pair = [&](uint32_t bits) {
    return quantize_pair<KvFormat::fp8>(bf16_value(uint16_t(bits)) * factor,
                                        bf16_value(uint16_t(bits >> 16)) * factor);
  };
  return {pair(low.x) | pair(high.x) << 16, pair(low.y) | pair(high.y) << 16,
          pair(low.z) | pair(high.z) << 16, pair(low.w) | pair(high.w) << 16};
}

// Four columns of a token from `column` on, a multiple of 4, times `factor`, to fp8_group_at(). The
// lanes of a quad have 16 columns in order. Lanes q and q + 2 have columns that lie side by side
// there, so they exchange a half. All lanes of the warp call it; `valid`: whether this one stores.
__device__ inline void store_fp8_quad(uint8_t* out, int column, int token, int tokens,
                                      const float4& v, float factor, bool valid) {
  const bool upper = column % 16 >= 8;
  const uint32_t low = quantize_pair<KvFormat::fp8>(v.x * factor, v.y * factor);
  const uint32_t high = quantize_pair<KvFormat::fp8>(v.z * factor, v.w * factor);
  const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? low : high, 2);
  const int first = upper ? column - 6 : column;
  if (!valid) return;
  *reinterpret_cast<uint32_t*>(out + fp8_group_at(first, token, tokens)) =
      upper ? other | high << 16 : low | other << 16;
}

}  // namespace ridge::cuda
