// Formulas of single numbers that both ways of running a step use.
#pragma once

#include "engine/cuda/decode/decode.cuh"

namespace ridge::cuda {

__device__ inline float gated(Gate gate, float value) {
  return gate == Gate::silu
             ? value / (1 + __expf(-value))
             : 0.5f * value *
                   (1 + tanhf(0.7978845608f * (value + 0.044715f * value * value * value)));
}

// Orders logits by value, then by the lower index: the largest key is the likeliest token's.
__device__ inline unsigned long long key_of(float value, int index) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // one zero, so that both are equal
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - index);
}
__device__ inline int index_of(unsigned long long key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ inline float logit_of(unsigned long long key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

}  // namespace ridge::cuda
