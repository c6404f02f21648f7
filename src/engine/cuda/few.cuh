// y = W x for at most 32 tokens, or for experts that have few tokens each: weights straight from
// memory into registers, as mma's A, tokens as its columns. Small blocks, several an SM, so that the
// next product's are there early and ask for their weights while the kernel before ends.
//
// A warp takes a block of 16 rows, or a part of its columns; the parts are summed by the first, in
// their order. How K is split depends on the matrix alone: a token's bits do not depend on the
// others of its step.
#pragma once

#include "engine/cuda/linear.cuh"

namespace ridge::cuda {

constexpr int kFewTokens = 32;    // of a step
constexpr int kFewChoices = 256;  // experts: of all its tokens
constexpr int kFewTile = 8;       // experts: tokens of a tile, those of an MMA

// Of LinearArgs, squares and next_norm are not for these products. Experts (tile_count, tiles of
// kFewTile slots): `source` has the slots' tokens, -1 for padding.
struct FewArgs : LinearArgs {
  const int* source = nullptr;
  // x is that of the tokens, x_padded of them, and the lists are from the kernel before. If not, x
  // is that of the slots, and the lists are older than the kernel before.
  bool gathers = false;
  int x_padded = 0;
};

// Queues a dependent launch (device.cuh).
void multiply_few(cudaStream_t stream, WeightFormat format, int sms, FewArgs args);

}  // namespace ridge::cuda
