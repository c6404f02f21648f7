// Experts: which of them each token goes to, and the tokens sorted by expert. Their results are
// summed by the norm that follows (rms_norm.cuh).
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/device.cuh"
#include "engine/cuda/rms_norm.cuh"

namespace ridge::cuda {

// One step's sorting. Slots: each expert's tokens, padded to whole tiles of the product.
struct ExpertRouting {
  int tokens, experts, top_k, tile;  // tile: slots of a tile
  bool normalize;                    // weights made to sum to 1
  float* logits;                     // [token][experts], of the router
  int* expert;                       // [token][top_k]
  float* weight;                     // [token][top_k]
  int* slot;                         // [token][top_k]
  int* count;                        // [expert]
  int* source;                       // [slot]: its token; -1: padding
  int* tile_matrix;                  // [tile]: its expert
  int* tile_count;
};
// Slots that tokens of so many choices may need.
constexpr int max_expert_slots(int tokens, int top_k, int experts, int tile) {
  const int most = tokens * top_k < experts ? tokens * top_k : experts;  // that have any
  return (tokens * top_k + most * (tile - 1) + tile - 1) / tile * tile;
}
void route_tokens(cudaStream_t stream, const ExpertRouting& routing);
// to at wide_at(k, slot, slots) = from at wide_at(k, token, padded).
void gather_tokens(cudaStream_t stream, const ExpertRouting& routing, const uint16_t* from,
                   int padded, uint16_t* to, int slots, int columns);
// For few tokens, in one kernel: their norm, the router's product with it, and route_tokens().
struct FusedRoutingArgs {
  RmsNormArgs norm;  // of all tokens, nothing to be added
  Tiles router;
  int matrix;
  ExpertRouting
      routing;        // at most kFusedRoutingMaxAssignments; `expert` and `count` are not written
  unsigned* arrived;  // zero between launches
};
void route_tokens_fused(cudaStream_t stream, const FusedRoutingArgs& args);

}  // namespace ridge::cuda
