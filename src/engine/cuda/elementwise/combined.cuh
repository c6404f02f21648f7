// The outputs of a token's experts, combined.
#pragma once

#include "engine/cuda/elementwise/rms_norm.cuh"

namespace ridge::cuda {

__device__ __forceinline__ float4 load_float4(const float* from, int i) {
  return reinterpret_cast<const float4*>(from)[i];
}

// Four columns of the weighted sum over a token's experts, in the order of the routing. Slots below
// 0 are on other ranks.
__device__ __forceinline__ float4 combined_float4(const ExpertOutputs& outputs, int token,
                                                  int hidden, int i) {
  float4 sum = {0, 0, 0, 0};
  for (int k = 0; k < outputs.top_k; ++k) {
    const int slot = outputs.slot[token * outputs.top_k + k];
    if (slot < 0) continue;
    const float4 y = load_float4(outputs.rows + size_t(slot) * hidden, i);
    const float w = outputs.weight[token * outputs.top_k + k];
    sum = {sum.x + w * y.x, sum.y + w * y.y, sum.z + w * y.z, sum.w + w * y.w};
  }
  return sum;
}

}  // namespace ridge::cuda
