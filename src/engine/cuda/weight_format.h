// How weights are kept on the device.
#pragma once

#include <cstdint>

namespace ridge::cuda {

enum class WeightFormat : uint8_t {
  bf16,
  fp8,   // E4M3, a scale a row
  int4,  // symmetric, an f16 scale for each 64 columns of a row: w = d (q - 8)
};

}  // namespace ridge::cuda
