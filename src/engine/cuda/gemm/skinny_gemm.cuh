// Skinny GEMM y = W x: few tokens, or routed experts that have few tokens each. mma.m16n8k16 takes
// the weights as A and 8 tokens as its columns, held in registers where they fit.
//
// Each warp computes a block of 16 rows, or a K range of it. How K is split depends on the matrix
// alone, and the ranges are summed in order: the bits of a token do not depend on the other tokens
// of its step. skinny_gemm_kernel.cuh draws the warps and their rings.
#pragma once

#include "engine/cuda/gemm/linear.cuh"

namespace ridge::cuda {

// Largest number of tokens of a dense GEMM. Tokens that do not fit in registers are loaded again
// for every few blocks of rows: the wgmma tiles of linear.cuh are faster from 17 tokens on.
constexpr int kSkinnyDenseTokens = 16;

// Routed experts. A tile has kSkinnyTile slots, the columns of one MMA.
constexpr int kSkinnyTile = 8;
constexpr int kSkinnyMaxTiles = 256;
constexpr int kSkinnyMaxTokens = 127;  // of a step: a token's index fits int8

// LinearArgs, of which `squares` and `next_norm` are not supported. Routed experts (tile_count)
// have tiles of kSkinnyTile slots.
struct SkinnyGemmArgs : LinearArgs {
  const int* source = nullptr;  // experts, [slot]: its token; -1: padding
  // True: x holds the tokens (x_padded of them), and the lists of tiles and slots come from the
  // previous kernel. False: x holds the slots, and the lists are older than the previous kernel.
  bool gathers = false;
  int x_padded = 0;
};

// Queues a dependent launch (device.cuh).
void skinny_gemm(cudaStream_t stream, WeightFormat format, int sms, SkinnyGemmArgs args);

}  // namespace ridge::cuda
