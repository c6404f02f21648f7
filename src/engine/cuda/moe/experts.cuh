// Routing of tokens to experts: router logits -> top k experts of each token -> tokens sorted by
// expert. The outputs of the experts are combined by the norm that follows (rms_norm.cuh).
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/elementwise/rms_norm.cuh"
#include "engine/cuda/layout/tiles.cuh"
#include "engine/cuda/moe/routing_limits.h"
#include "model/execution.h"

namespace ridge::cuda {

// The routing of one step, in device memory. An assignment is a pair (token, one of its top k
// experts). The assignments of an expert lie in consecutive slots, padded to whole tiles of the
// grouped GEMM.
struct ExpertRouting {
  int tokens, experts;
  int first, here;   // experts whose matrices are on this rank; others get no slot
  int top_k, tile;   // tile: slots of a tile
  bool normalize;    // top k weights are scaled to sum to 1
  float* logits;     // [token][experts], from the router
  int* expert;       // [token][top_k]: expert of the assignment
  float* weight;     // [token][top_k]
  int* slot;         // [token][top_k]; -1: the expert is on another rank
  int* count;        // [expert]: its assignments
  int* source;       // [slot]: its token; -1: padding
  int* tile_matrix;  // [tile]: its expert, counted from `first`
  int* tile_count;
  RouterRules rules;
  const float* correction;  // [experts] (RouterRules::correction)
  float* input_weight;      // [token][top_k] (RouterRules::scales_input; `weight` is then 1)
};

// An upper bound of the slots that a step needs.
constexpr int max_expert_slots(int tokens, int top_k, int experts, int tile) {
  const int active = tokens * top_k < experts ? tokens * top_k : experts;  // at most
  return (tokens * top_k + active * (tile - 1) + tile - 1) / tile * tile;
}

// From logits to slots. Queues dependent launches (device.cuh), as the functions below.
void route_tokens(cudaStream_t stream, const ExpertRouting& routing);

// Copies each token to its slots: `to` at wide_at(k, slot, slots) = `from` at wide_at(k, token,
// padded), times its weight where the rules say so.
void gather_tokens(cudaStream_t stream, const ExpertRouting& routing, const uint16_t* from,
                   int padded, uint16_t* to, int slots, int columns);

// [token][hidden]: the weighted sum over a token's experts on this rank, in the order of the
// routing.
void combine_experts(cudaStream_t stream, const ExpertOutputs& outputs, int tokens, int hidden,
                     float* to);

// RMSNorm, router GEMM and route_tokens() in one kernel, for small steps.
constexpr int kFusedRoutingMaxHidden = 12800;     // the normed tokens must fit shared memory
constexpr int kFusedRoutingMaxAssignments = 512;  // one thread each
struct FusedRoutingArgs {
  RmsNormArgs norm;  // of all tokens; `added` and `experts` are null
  Tiles router;
  int matrix;             // index of the router's matrix
  const float* bias;      // of the router, [experts]; null: none
  ExpertRouting routing;  // of all experts; `expert` and `count` are not written
  unsigned* arrived;      // counts blocks; zero between launches
  bool logits_only;       // norm and router GEMM alone
};
void route_tokens_fused(cudaStream_t stream, const FusedRoutingArgs& args);

}  // namespace ridge::cuda
