// How a step runs: chosen once per step, here.
#pragma once

#include <algorithm>

#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/device_model.h"
#include "engine/cuda/gemm/linear.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/moe/experts.cuh"

namespace ridge::cuda {

enum class StepPath : uint8_t {
  decode_kernel,  // one persistent kernel for the whole step (decode/decode.cuh)
  fused_layer,    // per layer: attention, then one kernel for all GEMMs up to the next attention,
                  // with the norms folded into their epilogues (gemm/linear.cuh)
  per_operator,   // a kernel per operator
};

// Whether the decode kernel has code for the model's shape.
inline bool has_decode_kernel(const ModelShape& s) {
  return (s.head_dim == 64 || s.head_dim == 128) && s.heads % s.kv_heads == 0 &&
         s.heads / s.kv_heads <= 8 && s.hidden % 64 == 0 && s.ffn % 16 == 0 &&
         s.layers <= kMaxLayers && s.experts == 0 && !s.post_norms && s.ropes.size() == 1;
}

// The path of a step without the decode kernel. Experts need the tokens sorted between GEMMs, and a
// post-norm needs whole rows before they are added, so both keep their operators apart.
inline StepPath forward_path(const ModelShape& s, int tokens) {
  const bool fusible = s.experts == 0 && !s.post_norms;
  return fusible && tokens <= Linear::kMaxChainedTokens ? StepPath::fused_layer
                                                        : StepPath::per_operator;
}

inline StepPath step_path(const ModelShape& s, int tokens) {
  if (tokens <= kMaxRows && has_decode_kernel(s)) return StepPath::decode_kernel;
  return forward_path(s, tokens);
}

// Whether the experts of a step run as skinny GEMMs, with norm, router and routing in one kernel.
// That is faster up to four tokens per expert on average: a tile has eight, and an expert with more
// reads its weights again. The other limits are those of the kernels.
inline bool uses_skinny_experts(const ModelShape& s, int tokens) {
  return s.hidden <= kFusedRoutingMaxHidden && tokens <= kSkinnyMaxTokens &&
         tokens * s.top_k <= std::min(kFusedRoutingMaxAssignments, 4 * s.experts) &&
         max_expert_slots(tokens, s.top_k, s.experts, kSkinnyTile) <=
             kSkinnyMaxTiles * kSkinnyTile &&
         !s.post_norms;
}

}  // namespace ridge::cuda
