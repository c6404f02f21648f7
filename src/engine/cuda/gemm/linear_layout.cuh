// Tile sizes and shared memory of the linear kernel (linear_kernel.cuh).
//
//   LinearShared, one block per SM
//   +----------------------------------------------------------------------------+
//   | weights_full/_empty[kWeightSlots], tokens_full/_empty[kTokenSlots], scaled |  mbarriers
//   | barriers_passed   scale[tokens]   squares[8 warps][tokens]                 |  folded norms
//   | staging[8 warps][32 tokens][16 rows + 4]                             f32   |  epilogue
//   | largest[8 warps][tokens]   factor[tokens]                                  |  E4M3 only
//   +----------------------------------------------------------------------------+
//   | weights[kWeightSlots]: [box][blocks of 16 rows][steps of the box]          |  packed tiles
//   +----------------------------------------------------------------------------+
//   | tokens[kTokenSlots]:   [step][tokens x 64 columns]           bf16 or E4M3  |  core matrices
//   +----------------------------------------------------------------------------+
#pragma once

#include "engine/cuda/device/pipeline.cuh"
#include "engine/cuda/gemm/linear.cuh"

namespace ridge::cuda {

constexpr int kTileRows = 128;
constexpr int kTileBlocks = kTileRows / kBlockRows;  // the most: one for each math warp
constexpr int kStepColumns = 64;                     // columns of K in a step
constexpr int kMaxTileTokens = 256;
constexpr int kSplitUnit = 4;  // steps; K is split at multiples of it
constexpr int kMathThreads = kTileBlocks * 32;
constexpr int kLinearThreads = kMathThreads + 128;  // setmaxnreg needs whole warpgroups
constexpr int kSlices = 4;       // split-K: blocks of a tile that finish a slice of its tokens each
constexpr int kRasterGroup = 8;  // token tiles that are walked together over all rows, to hit L2

// Results on their way to global memory, per warp: 16 rows of kStagingTokens, padded against bank
// conflicts.
constexpr int kStagingTokens = 32, kStagingStride = kBlockRows + 4;
constexpr int kStagingBytes = kTileBlocks * kStagingTokens * kStagingStride * 4;

__host__ __device__ constexpr int min_of(int a, int b) { return a < b ? a : b; }

// Larger token tiles run one GEMM per launch: the code for chains is compiled out.
template <int kTokens>
constexpr bool kChained = kTokens <= Linear::kMaxChainedTokens;
template <int kTokens>
__host__ __device__ constexpr int gemm_count(const GemmChain& chain) {
  return kChained<kTokens> ? chain.count : 1;
}

// Whether the kernel has code for pairs of row tiles (LinearArgs::paired). Not with activations in
// E4M3, whose scales need the results of a whole tile of 8 blocks. Not in bf16: all SMs would read
// the same columns of K at the same time, 5 % slower than stream-K (docs/batched-steps.md). Tiles
// of 128 tokens would spill.
__host__ __device__ constexpr bool has_pairs(WeightFormat format, int tokens, bool fp8_tokens) {
  return tokens <= 64 && format != WeightFormat::bf16 && !fp8_tokens;
}

// Registers of a producer thread and of a math thread: 168 on average.
template <int kTokens>
constexpr int kProducerRegisters = kChained<kTokens> ? 56 : 40;
template <int kTokens>
constexpr int kMathRegisters = kChained<kTokens> ? 224 : 232;

// Steps of K in a stage, and in a box of the weights' tensor map (at most 256 units of 8 bytes).
// The cost of a stage (waiting for it, issuing its loads, releasing it) does not depend on its
// size. Narrow formats and small token tiles leave room for more K per stage.
__host__ __device__ constexpr int stage_steps(WeightFormat format, int tokens, bool fp8_tokens) {
  const int columns = format_info(format).columns;
  if (fp8_tokens) return 2;
  return tokens > 64 || columns == 16 ? 1 : tokens > 32 || columns == 32 ? 2 : 4;
}
__host__ __device__ constexpr int box_steps(WeightFormat format, int tokens, bool fp8_tokens) {
  return min_of(2, stage_steps(format, tokens, fp8_tokens));
}

// Bytes of shared memory for numbers of each token: LinearShared::scale to factor.
__host__ __device__ constexpr int token_numbers_bytes(int tokens, bool fp8_tokens) {
  return tokens * 4 * (1 + kTileBlocks + (fp8_tokens ? kTileBlocks + 1 : 0));
}

// One stage of each ring, and the number of stages. kFp8Tokens: activations in E4M3.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
struct LinearStage {
  static constexpr int kSteps = stage_steps(kFormat, kTokens, kFp8Tokens);
  static constexpr int kBoxSteps = box_steps(kFormat, kTokens, kFp8Tokens);
  static_assert(kSplitUnit % kSteps == 0 && kSteps % kBoxSteps == 0);
  // Bytes of a step: the weights of one block of 16 rows, and all tokens.
  static constexpr int kBlockBytes =
      kStepColumns / format_info(kFormat).columns * format_info(kFormat).chunk_bytes;
  static constexpr int kStepTokenBytes =
      kFp8Tokens ? fp8_group_bytes(kTokens) : kTokens * kStepColumns * 2;
  // Bytes of a stage. Weights lie as [box][block][step of the box].
  static constexpr int kBoxBytes = kTileBlocks * kBoxSteps * kBlockBytes;
  static constexpr int kWeightBytes = kTileBlocks * kSteps * kBlockBytes;
  static constexpr int kTokenBytes = kSteps * kStepTokenBytes;
  // Tokens come from L2: their ring covers its latency, which is the time of 64 KB of weights. The
  // weights get the rest: their ring bridges the grid barrier between two GEMMs.
  // 4 bytes per token more than that: room for the barriers.
  static constexpr int kRoom =
      226 * 1024 - kStagingBytes - token_numbers_bytes(kTokens, kFp8Tokens) - 4 * kTokens;
  static constexpr int kTokenSlots =
      min_of((64 * 1024 + kWeightBytes - 1) / kWeightBytes, kRoom * 85 / 100 / kTokenBytes);
  static constexpr int kWeightSlots =
      min_of(48, (kRoom - kTokenSlots * (kTokenBytes + 16)) / (kWeightBytes + 16));
  // Weight stages in flight: enough to cover latency. More would queue at the memory, and the small
  // reads between operators would queue behind them.
  static constexpr int kInFlight =
      min_of(kWeightSlots, (64 * 1024 + kWeightBytes - 1) / kWeightBytes);
};

// The size of LinearShared, which is defined in device code only.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
__host__ __device__ constexpr int linear_shared_bytes() {
  using Stage = LinearStage<kFormat, kTokens, kFp8Tokens>;
  return Stage::kWeightSlots * (Stage::kWeightBytes + 16) +
         Stage::kTokenSlots * (Stage::kTokenBytes + 16) + 24 +
         token_numbers_bytes(kTokens, kFp8Tokens) + kStagingBytes + 256;  // alignment
}

#ifdef RIDGE_HOPPER

template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
struct LinearShared {
  using Stage = LinearStage<kFormat, kTokens, kFp8Tokens>;
  uint64_t weights_full[Stage::kWeightSlots], weights_empty[Stage::kWeightSlots];
  uint64_t tokens_full[Stage::kTokenSlots], tokens_empty[Stage::kTokenSlots];
  uint64_t scaled;                   // `scale` holds the scales of the current GEMM
  unsigned barriers_passed;          // grid barriers of this launch that are over
  alignas(16) float scale[kTokens];  // folded norm: factor of each token
  float squares[kTileBlocks][kTokens];
  // E4M3 results: the largest magnitude of a warp's rows, and the factor of the tile's.
  float largest[kFp8Tokens ? kTileBlocks : 1][kFp8Tokens ? kTokens : 1];
  float factor[kFp8Tokens ? kTokens : 1];
  alignas(16) float staging[kTileBlocks][kStagingTokens * kStagingStride];
  alignas(128) uint8_t weights[Stage::kWeightSlots][Stage::kWeightBytes];
  alignas(128) uint8_t tokens[Stage::kTokenSlots][Stage::kTokenBytes];
};

#endif

}  // namespace ridge::cuda
