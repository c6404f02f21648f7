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
  // Experts: E2M1, a power of two per 32 columns of a row (OCP MX 1.0), as gpt-oss is released.
  // Every other matrix of such a model is bf16.
  mxfp4,
};

// Of the matrices that are not experts'.
constexpr WeightFormat dense_format(WeightFormat format) {
  return format == WeightFormat::mxfp4 ? WeightFormat::bf16 : format;
}

enum class KvFormat : uint8_t {
  bf16,
  f16,
  fp8,   // E4M3, one f32 scale per token and head
  int8,  // symmetric, one f32 scale per token and head: x = d q, |q| <= 127
};

}  // namespace ridge::cuda
