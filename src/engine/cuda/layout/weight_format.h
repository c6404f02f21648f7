// How weights and the KV cache are kept on the device.
#pragma once

#include <cstdint>

namespace ridge::cuda {

enum class WeightFormat : uint8_t {
  bf16,
  fp8,   // E4M3, a scale a row
  int8,  // symmetric, a scale a row: w = d q, |q| <= 127
  int4,  // symmetric, an f16 scale for each 64 columns of a row: w = d (q - 8)
  nf4,   // NormalFloat4, an f16 scale (the largest magnitude) for each 64 columns of a row
};

enum class KvFormat : uint8_t {
  bf16,
  f16,
  fp8,   // E4M3, a scale for each token and head
  int8,  // symmetric, a scale for each token and head: x = d q, |q| <= 127
};

}  // namespace ridge::cuda
