// Formats of weights and of the KV cache in device memory.
#pragma once

#include <cstdint>

namespace ridge::cuda {

enum class WeightFormat : uint8_t {
  bf16,
  fp8,   // E4M3, one f32 scale per row
  int8,  // symmetric, one f32 scale per row: w = d q, |q| <= 127
  int4,  // symmetric, an f16 scale per 64 columns of a row: w = d (q - 8)
  nf4,   // NormalFloat4, an f16 scale (the largest magnitude) per 64 columns of a row
};

enum class KvFormat : uint8_t {
  bf16,
  f16,
  fp8,   // E4M3, one f32 scale per token and head
  int8,  // symmetric, one f32 scale per token and head: x = d q, |q| <= 127
};

}  // namespace ridge::cuda
