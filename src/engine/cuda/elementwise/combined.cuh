// The outputs of a token's experts, combined.
#pragma once

#include "engine/cuda/elementwise/rms_norm.cuh"

namespace ridge::cuda {

__device__ __forceinline__ float4 load_float4(const float* from, int i) {
  return reinterpret_cast<const float4*>(from)[i];
}

// Four columns of the weighted sum over a token's experts, in the order of the routing. Slots below
// 0 are on other ranks. kInFlight: experts whose rows are loaded together.
template <int kInFlight>
__device__ __forceinline__ float4 combined_float4(const ExpertOutputs& outputs, int token,
                                                  int hidden, int i) {
  float4 sum = {0, 0, 0, 0};
  for (int first = 0; first < outputs.top_k; first += kInFlight) {
    const int at = token * outputs.top_k + first, count = outputs.top_k - first;
    int slot[kInFlight];
    float w[kInFlight];
    float4 y[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      slot[k] = k < count ? outputs.slot[at + k] : -1;
      w[k] = k < count ? outputs.weight[at + k] : 0;
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (slot[k] >= 0) y[k] = load_float4(outputs.rows + size_t(slot[k]) * hidden, i);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (slot[k] < 0) continue;
      sum = {sum.x + w[k] * y[k].x, sum.y + w[k] * y[k].y, sum.z + w[k] * y[k].z,
             sum.w + w[k] * y[k].w};
    }
  }
  return sum;
}

}  // namespace ridge::cuda
