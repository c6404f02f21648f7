// Activations in E4M3 with a scale per token, for GEMMs with weights in fp8.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

// Token t of `x` (bf16 at wide_at) becomes E4M3 at fp8_at times scale[t], the largest magnitude of
// the token / 448. Columns: a multiple of 128. Queues a dependent launch (device.cuh).
struct QuantizeTokensArgs {
  const uint16_t* x;
  uint8_t* out;
  float* scale;  // [padded]
  int columns, padded;
};
void quantize_tokens(cudaStream_t stream, const QuantizeTokensArgs& args);

}  // namespace ridge::cuda
