// Activations of the largest step on the CPU, allocated once.
#pragma once

#include "engine/cpu/matmul.h"
#include "engine/cpu/rows.h"
#include "engine/runner/runner.h"

namespace ridge::cpu {

struct StepBuffers {
  // `is_cut`: other ranks hold parts of the same layers.
  StepBuffers(const Architecture& shape, const RunnerOptions& options, bool is_cut,
              int64_t logit_columns);

  // [tokens x ...]
  Rows x;                                // the residual stream
  Rows normed;                           // of x
  Rows q, k, v;                          // before and after RoPE
  Rows mixed;                            // attention's output
  Rows q_latent, q_heads, mixed_latent;  // latent attention: before and after the latent space
  Rows inner;                            // activation(gate x) * (up x)
  Rows block;                            // what a block adds to x, where it cannot be added at once
  Rows expert_sum;                       // this rank's part of what the experts add to x
  Rows logits;                           // [rows of logits x this rank's part of the vocabulary]
  // What GEMMs read: of normed x or of the latents, of `inner`, of heads one after the other.
  Input input, inner_input, head_input;
};

}  // namespace ridge::cpu
