// The activations of a step that runs layer by layer (forward.cuh), for the largest step there may
// be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/device/kernel_set.h"
#include "engine/cuda/device/workspace.h"
#include "engine/cuda/layout/model_shape.h"
#include "engine/cuda/step/step_slice.h"

namespace ridge::cuda {

// bf16 arrays are laid out by wide_at (layout/tiles.cuh); columns beyond the matrix must be zero.
struct ForwardBuffers {
  ForwardBuffers(Workspace& workspace, const ModelShape& shape, const StepBounds& bounds);
  void take_experts(Workspace& workspace, const ModelShape& shape, const StepBounds& bounds);
  void take_latents(Workspace& workspace, const ModelShape& shape, size_t tokens);

  float* residual;      // [token][hidden]
  float* qkv;           // [token][qkv rows]; after attention, E4M3 inputs of out and down
  float* block_output;  // [token][hidden], with post-norms or ranks: what the next norm adds
  float* squares;       // [column tile][token], of the residual: fused_layer
  uint16_t* x;          // normed residual; with fp8 products in E4M3, at fp8_at
  float* token_scale;   // [token], of activations in E4M3
  uint16_t* q;          // [token][heads * head_dim], plain rows
  uint16_t* attended;
  uint16_t* activated;  // of the dense MLP

  // Latent attention (attention/latent_rows.cuh); null where the model has none. Slots: of a head
  // and a token.
  uint16_t* q_normed;         // the queries' latent, normed
  float* q_heads;             // [token][heads (nope + rope)], where q_rank is not 0
  uint16_t *q_nope, *q_rope;  // of slots; [token][head][kLatentRope]
  float* q_latent;            // [slot][kLatentRank]
  uint16_t* attended_latent;  // of slots
  float* values;              // [slot][value]

  float* logits;             // [logit row][vocab]
  int* argmax;               // [logit row]
  unsigned long long* best;  // [logit row], zero between steps

  // Experts; null where the model has none. A slot is a token at one of its experts.
  float* router_logits;                    // [token][expert]
  float* expert_weight;                    // [token][top_k]
  float* expert_input_weight;              // [token][top_k] (RouterRules::scales_input)
  int *expert, *slot;                      // [token][top_k]
  int* expert_count;                       // [expert]
  int *source, *tile_expert, *tile_count;  // [slot], [tile], one
  unsigned* arrived;                       // zero between launches
  uint16_t *expert_x, *expert_activated;   // of slots
  float* expert_rows;                      // [slot][hidden]
  uint16_t* shared_activated;              // of the shared expert
};

// The tile of the experts' GEMMs, in slots.
int expert_tile(const ModelShape& shape, KernelSet kernels, int tokens);

}  // namespace ridge::cuda
