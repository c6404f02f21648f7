// Tile, stages and shared memory of the prefill GEMM (prefill_gemm_kernel.cuh).
//
//   Shared, one block per SM
//   +--------------------------------------------------------------------------+
//   | staging[2 warpgroups][16 KB]               results on their way out      |  1024-byte aligned
//   +--------------------------------------------------------------------------+
//   | tokens[kTokenSlots]: [256 tokens x 64 columns of bf16 or 128 of E4M3]    |  core matrices
//   +--------------------------------------------------------------------------+
//   | weights[kWeightSlots]: [8 blocks of 16 rows][chunks of the stage]        |  packed tiles
//   +--------------------------------------------------------------------------+
//   | token_scale[2 warpgroups][256]                                           |  E4M3 only
//   | weights_full/_empty[kWeightSlots], tokens_full/_empty[kTokenSlots]       |  mbarriers
//   +--------------------------------------------------------------------------+
#pragma once

#include "engine/cuda/device/pipeline.cuh"
#include "engine/cuda/gemm/prefill_gemm.cuh"

namespace ridge::cuda::prefill {

constexpr int kRows = 128, kTokens = 256;    // of a tile
constexpr int kBlocks = kRows / kBlockRows;  // one for each math warp
constexpr int kGroupThreads = 128;           // of a math warpgroup
constexpr int kThreads = 3 * kGroupThreads;  // and of the producer's
constexpr int kCluster = 2;                  // blocks with the same tokens
constexpr int kRasterTokens = 8;             // token tiles walked together over all rows: L2 hits
constexpr int kStagingBytes = 16 * 1024;     // of a warpgroup
constexpr int kProducerRegisters = 24, kMathRegisters = 240;  // 168 on average

// Groups of 8 tokens that a block of the cluster loads.
constexpr int kTokenGroups = kTokens / 8 / kCluster;

// Fewest stages of K. With fewer, the first warpgroup could be two tiles ahead of the second.
constexpr int kMinSteps = 8;

// Results leave in pieces of 16 tokens x 64 rows. Each has a buffer in the staging memory.
constexpr int kPieceTokens = 16;
constexpr int kPieceBytes = kPieceTokens * 64 * 4, kBuffers = kStagingBytes / kPieceBytes;

// kFp8Tokens: activations in E4M3, twice the columns in a stage of the same bytes.
template <WeightFormat kFormat, bool kFp8Tokens>
struct Stage {
  static constexpr int kColumns = kFp8Tokens ? 128 : 64;
  static constexpr int kBlockBytes =
      kColumns / format_info(kFormat).columns * format_info(kFormat).chunk_bytes;
  static constexpr int kWeightBytes = kBlocks * kBlockBytes;
  static constexpr int kTokenBytes = kTokens * 128;
  // Slots of the two rings.
  static constexpr int kTokenSlots = 4;
  static constexpr int kRoom = 226 * 1024 - 2 * kStagingBytes - 4096 - kTokenSlots * kTokenBytes;
  static constexpr int kWeightSlots = kRoom / kWeightBytes < 8 ? kRoom / kWeightBytes : 8;
};

template <WeightFormat kFormat, bool kFp8Tokens>
struct Shared {
  using TheStage = Stage<kFormat, kFp8Tokens>;
  alignas(1024) uint8_t staging[2][kStagingBytes];
  alignas(128) uint8_t tokens[TheStage::kTokenSlots][TheStage::kTokenBytes];
  alignas(128) uint8_t weights[TheStage::kWeightSlots][TheStage::kWeightBytes];
  float token_scale[2][kTokens];
  uint64_t weights_full[TheStage::kWeightSlots], weights_empty[TheStage::kWeightSlots];
  uint64_t tokens_full[TheStage::kTokenSlots], tokens_empty[TheStage::kTokenSlots];
};

#ifdef RIDGE_HOPPER

// The tiles of this block, in order. The blocks of a cluster take adjacent row tiles of the same
// tokens; clusters take such pairs in turn. Groups of kRasterTokens token tiles go together over
// all rows.
struct Schedule {
  int token_tiles, row_pairs, at, rank;
  int row, token;  // the current tile

  __device__ Schedule(const LinearArgs& args)
      : token_tiles(args.tile_count ? *args.tile_count : args.padded / kTokens),
        row_pairs((args.row_tiles + kCluster - 1) / kCluster),
        at(int(blockIdx.x) / kCluster - int(gridDim.x) / kCluster),
        rank(int(blockIdx.x) % kCluster) {}

  __device__ bool next() {
    at += int(gridDim.x) / kCluster;
    if (at >= row_pairs * token_tiles) return false;
    const int group_tiles = kRasterTokens * row_pairs, group = at / group_tiles;
    const int width = min(kRasterTokens, token_tiles - group * kRasterTokens);
    row = at % group_tiles / width * kCluster + rank;
    token = group * kRasterTokens + at % group_tiles % width;
    return true;
  }
};

#endif

}  // namespace ridge::cuda::prefill
