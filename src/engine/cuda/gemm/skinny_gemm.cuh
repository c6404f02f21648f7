// y = W x for few tokens, or for experts that have few tokens each: weights as mma's A, tokens as
// its columns, 8 at a time, held in registers where they fit. Each warp has a ring of its own in
// shared memory and fills it by bulk copies, the first of them before the kernel before has ended.
//
// A warp takes a block of 16 rows, or a part of its columns; the parts are summed by the first, in
// their order. How K is split depends on the matrix alone: a token's bits do not depend on the
// others of its step.
#pragma once

#include "engine/cuda/gemm/linear.cuh"

namespace ridge::cuda {

// Of a step. Tokens that do not fit registers are loaded anew for every block of rows: with weights
// of bytes wgmma's tiles are faster from 17 on.
constexpr int skinny_gemm_max_tokens(WeightFormat format) {
  return format == WeightFormat::bf16 ? 32 : 16;
}
// Experts are chosen by one kernel for a residual of at most so many columns.
constexpr int kFusedRoutingMaxHidden = 12800;
// Experts: at most so many tokens of a step, choices of theirs, and tiles; tokens of a tile, those
// of an MMA.
constexpr int kSkinnyMaxTokens = 127, kFusedRoutingMaxAssignments = 512, kSkinnyMaxTiles = 256,
              kSkinnyTile = 8;

// Of LinearArgs, squares and next_norm are not for these products. Experts (tile_count, tiles of
// kSkinnyTile slots): `source` has the slots' tokens, -1 for padding.
struct SkinnyGemmArgs : LinearArgs {
  const int* source = nullptr;
  // x is that of the tokens, x_padded of them, and the lists are from the kernel before. If not, x
  // is that of the slots, and the lists are older than the kernel before.
  bool gathers = false;
  int x_padded = 0;
};

// Queues a dependent launch (device.cuh).
void skinny_gemm(cudaStream_t stream, WeightFormat format, int sms, SkinnyGemmArgs args);

}  // namespace ridge::cuda
