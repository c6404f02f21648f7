// Functions of single numbers that several kernels share: bf16 conversions, the activation of the
// gated MLP, and keys that order logits.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace ridge::cuda {

__device__ inline uint32_t bits_of(__nv_bfloat162 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline __nv_bfloat162 pair_of(uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}
// `low` in the lower half of the word.
__device__ inline uint32_t pack_bf16(float low, float high) {
  return bits_of(__floats2bfloat162_rn(low, high));
}
__device__ inline uint16_t bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ inline float bf16_value(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }

// Maximum of each of the two unsigned 16-bit halves.
__device__ inline uint32_t max_u16x2(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("max.u16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
#else
  return __vmaxu2(a, b);
#endif
}

// The activation of the MLP's gate. clamped_swiglu: gpt-oss, see gate_times_up().
enum class Activation : uint8_t { silu, gelu_tanh, clamped_swiglu };

__device__ inline float activate(Activation activation, float value) {
  return activation == Activation::silu
             ? value / (1 + __expf(-value))
             : 0.5f * value *
                   (1 + tanhf(0.7978845608f * (value + 0.044715f * value * value * value)));
}

constexpr float kSwigluSlope = 1.702f, kSwigluLimit = 7;  // gpt-oss
__device__ inline float gate_times_up(Activation activation, float gate, float up) {
  if (activation != Activation::clamped_swiglu) return activate(activation, gate) * up;
  const float g = fminf(gate, kSwigluLimit), u = fminf(fmaxf(up, -kSwigluLimit), kSwigluLimit);
  return g / (1 + __expf(-kSwigluSlope * g)) * (u + 1);
}

// Keys order logits by value, then by the lower token id: the largest key is the argmax.
__device__ inline unsigned long long logit_key(float logit, int token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 becomes +0: both are equal
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - token);
}
__device__ inline int key_token(unsigned long long key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ inline float key_logit(unsigned long long key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

}  // namespace ridge::cuda
