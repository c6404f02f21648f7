// Operators between the GEMMs on the CPU.
#pragma once

#include <cstdint>

#include "base/thread_team.h"
#include "engine/weights/weights.h"

namespace ridge::cpu {

// y[t] = x[t] / rms(x[t]) * w; the mean square is summed in f32 pairwise or in double.
void rms_norm(ThreadTeam& team, const float* x, int64_t stride, int tokens, int columns,
              const float* w, float eps, float* y, int64_t y_stride);
// The same of one row, on the calling thread.
void rms_norm_row(const float* x, const float* w, int columns, float eps, float* y);
// x[t] += y[t] / rms(y[t]) * w: Gemma's norm of a block's output, fused with the residual add.
void rms_norm_add(ThreadTeam& team, const float* y, int64_t y_stride, int tokens, int columns,
                  const float* w, float eps, float* x, int64_t stride);
// x[t] += y[t].
void add_rows(ThreadTeam& team, const float* y, int64_t y_stride, int tokens, int columns, float* x,
              int64_t stride);
// x[t] = scale * embed[token[t]], for an embedding in any storage.
void embed(ThreadTeam& team, const Matrix& table, const int32_t* tokens, int count, float scale,
           float* x, int64_t stride);
// x = c tanh(x / c), in place.
void soft_cap(ThreadTeam& team, float* x, int64_t count, float cap);
// Selects the experts of a token: the top_k largest of the router's logits (ties: the lower index
// first), weighted by the softmax over all. With `normalize` their weights are scaled to sum to 1.
// `routing` changes the choice and the weights; `correction` is its bias per expert, or null.
void choose_experts(const float* logits, int experts, int top_k, bool normalize, int32_t* chosen,
                    float* weight, const RouterRules& routing = {},
                    const float* correction = nullptr);

}  // namespace ridge::cpu
