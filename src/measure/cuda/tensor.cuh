// The tensor cores' formats, and the two instructions that drive them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace ridge {

enum class TensorType { tf32, bf16, fp16, fp8, int8 };
inline constexpr TensorType kTensorTypes[] = {TensorType::tf32, TensorType::bf16, TensorType::fp16,
                                              TensorType::fp8, TensorType::int8};

inline const char* tensor_name(TensorType type) {
  constexpr const char* kNames[] = {"tf32", "bf16", "fp16", "fp8", "int8"};
  return kNames[static_cast<int>(type)];
}
inline double tensor_bytes(TensorType type) {
  constexpr double kBytes[] = {4, 2, 2, 1, 1};
  return kBytes[static_cast<int>(type)];
}

// A float with `exponent_bits` and `mantissa_bits`, cut off, not rounded; what is too small for a
// normal number becomes the smallest one. Good enough for random operands.
inline __host__ __device__ uint32_t shortened(float value, int exponent_bits, int mantissa_bits) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = static_cast<int>((bits >> 23) & 0xff) - 127 + bias;
  const int largest = (1 << exponent_bits) - 2;
  exponent = exponent < 1 ? 1 : exponent > largest ? largest : exponent;
  const uint32_t mantissa = (bits & 0x7fffffu) >> (23 - mantissa_bits);
  return (bits >> 31 << (exponent_bits + mantissa_bits)) |
         (static_cast<uint32_t>(exponent) << mantissa_bits) | mantissa;
}

// The number in the low bits of a word.
inline __host__ __device__ uint32_t encoded(TensorType type, float value) {
  switch (type) {
    case TensorType::tf32:
      return shortened(value, 8, 23);
    case TensorType::bf16:
      return shortened(value, 8, 7);
    case TensorType::fp16:
      return shortened(value, 5, 10);
    case TensorType::fp8:
      return shortened(value, 4, 3);
    case TensorType::int8:
      return static_cast<uint32_t>(static_cast<int>(value * 32)) & 0xff;
  }
  return 0;
}

// wgmma (sm_90a): one block per SM. Each thread writes the sum of its accumulators, each block the
// clocks of its loop.
int wgmma_threads();
double wgmma_ops(TensorType type);                     // of a block and tile
double wgmma_sum_of_ones(TensorType type, int tiles);  // a thread's sum when A and B are ones
void launch_wgmma(TensorType type, cudaStream_t stream, int sms, const uint32_t* operands,
                  int words, int tiles, double* out, long long* cycles);

}  // namespace ridge
