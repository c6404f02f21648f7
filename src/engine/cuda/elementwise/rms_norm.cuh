// RMSNorm of residual rows, with the residual additions that come right before it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

// Outputs of routed experts, not yet combined: a token's result is the weighted sum over its top_k
// rows, in the order of the routing.
struct ExpertOutputs {
  const float* rows;    // [slot][hidden]; null: no expert outputs
  const int* slot;      // [token][top_k]
  const float* weight;  // [token][top_k]
  int top_k;
};

constexpr int kMaxFp8Hidden = 8192;
constexpr int kMaxNormColumns = 16384;

// For each of `count` rows:
//   residual += added, or the combined expert outputs; normed by added_norm first where given
//   out = RMSNorm(residual) * norm, in bf16 or with a scale per row in E4M3
struct RmsNormArgs {
  float* residual;          // [token][hidden]
  const int* rows;          // [count]: tokens to norm; null: token i is row i
  const float* added;       // [token][hidden]; null: nothing
  ExpertOutputs experts;    // at most one of `added` and `experts` is set
  const float* added_norm;  // [hidden]; null: no norm of what is added
  const float* norm;        // [hidden]
  uint16_t* out;            // bf16 at wide_at(column, i, padded)
  // Instead of `out`: E4M3 at fp8_at(column, i, padded), to be multiplied by token_scale[i]. At
  // least 64 rows; hidden: a multiple of 128, at most kMaxFp8Hidden. Null: none.
  uint8_t* fp8_out;
  float* token_scale;
  int hidden, count, padded;  // hidden: a multiple of 4
  float eps;
};
// Queues a dependent launch (device.cuh).
void rms_norm(cudaStream_t stream, const RmsNormArgs& args);

}  // namespace ridge::cuda
