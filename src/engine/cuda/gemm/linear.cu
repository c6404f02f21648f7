#include <algorithm>

#include "base/error.h"
#include "engine/cuda/gemm/linear_layout.cuh"
#include "engine/cuda/gemm/prefill_gemm.cuh"
#include "engine/cuda/gemm/tensor_map.cuh"

namespace ridge::cuda {

namespace {

using Launch = void (*)(cudaStream_t, int, int, const GemmChain&);
Launch launch_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return launch_linear_format<WeightFormat::bf16, false>;
    case WeightFormat::fp8:
      return launch_linear_format<WeightFormat::fp8, false>;
    case WeightFormat::int8:
      return launch_linear_format<WeightFormat::int8, false>;
    case WeightFormat::int4:
      return launch_linear_format<WeightFormat::int4, false>;
    case WeightFormat::nf4:
      return launch_linear_format<WeightFormat::nf4, false>;
    case WeightFormat::mxfp4:
      return launch_linear_format<WeightFormat::mxfp4, false>;
  }
  throw Error("no GEMM for this format");
}

// Whether every thread block computes two smaller row tiles over all of K, which needs no partial
// sums and loads the tokens once for both: where the two have no more weights than stream-K gives a
// thread block.
void choose_pairs(LinearArgs& args, WeightFormat format, int token_tiles, int tile_tokens,
                  int sms) {
  if (!args.stream_k || args.split_k || token_tiles > 1 || args.epilogue != Epilogue::gate ||
      !has_pairs(format, tile_tokens, args.fp8_tokens)) {
    return;
  }
  const int tile_units = (args.k_steps + kSplitUnit - 1) / kSplitUnit;
  const int block_units = (args.row_tiles * tile_units + sms - 1) / sms;
  const int blocks = (args.tiles.blocks + sms - 1) / sms, tile_blocks = (blocks + 1) / 2;
  args.paired =
      tile_blocks <= kTileBlocks && 2 * tile_blocks * tile_units <= block_units * kTileBlocks;
  if (!args.paired) return;
  args.stream_k = false;
  args.tile_blocks = tile_blocks;
  args.row_tiles = (args.tiles.blocks + tile_blocks - 1) / tile_blocks;
}

// Whether and how K is split.
void choose_split(LinearArgs& args, int token_tiles, int tile_tokens, int sms) {
  // Whole tiles where they keep at least 92 % of the SMs busy: exchanging partial sums costs about
  // 5 % of a tile. Experts: the number of tiles is not known on the host.
  const int tiles = args.row_tiles * token_tiles;
  const int waves = (tiles + sms - 1) / sms;
  args.stream_k = args.tile_count == nullptr && tiles < 0.92 * waves * sms;
  // Split-K where it gives no block more than stream-K does: the blocks of a tile then share its
  // epilogue.
  const int tile_units = (args.k_steps + kSplitUnit - 1) / kSplitUnit;
  const int block_units = (tiles * tile_units + sms - 1) / sms;
  const int split = (tile_units + block_units - 1) / block_units;
  const bool even =
      args.stream_k && tile_tokens <= Linear::kMaxChainedTokens && tiles * split <= sms;
  args.split_k = even && split >= kSlices ? split : 0;
}

// What the kernel for activations in E4M3 relies on.
void check_fp8_tokens(WeightFormat format, const LinearArgs& args, int tile_tokens, bool first) {
  const bool one_tile = tile_tokens <= Linear::kMaxChainedTokens && args.padded == tile_tokens;
  const bool groups = args.k_steps % (args.fp8_group / kStepColumns) == 0 &&
                      (!args.quantized_x || (first && args.fp8_group == kStepColumns));
  const bool whole_tiles = !args.fp8_out || args.tiles.blocks % kTileBlocks == 0;
  if (format != WeightFormat::fp8 || !one_tile || !groups || !whole_tiles || args.tile_count) {
    throw Error("no GEMM in E4M3 for {} tokens in tiles of {}, {} rows and {} columns", args.tokens,
                tile_tokens, args.row_count, args.k_steps * kStepColumns);
  }
}

}  // namespace

Linear::Linear(WeightFormat format, int sms)
    : format_(format),
      sms_(sms),
      partials_(memory_bytes(sms) / sizeof(float)),
      ready_(size_t(sms) * kTileBlocks),
      grid_barrier_(1) {
  partials_.fill_bytes(0);  // no epoch
  ready_.fill_bytes(0);
  grid_barrier_.fill_bytes(0);
}

size_t Linear::memory_bytes(int sms) {
  const size_t floats = size_t(kTileRows) * kMaxTileTokens, tagged = size_t(kTileRows) * 32;
  return sms * (floats * sizeof(float) + tagged * sizeof(uint64_t));
}

int Linear::tile_tokens(int tokens) {
  return tokens <= 32 ? 32 : tokens <= 64 ? 64 : tokens <= 128 ? 128 : 256;
}

int Linear::padded(int tokens) {
  const int tile = tile_tokens(tokens);
  return (tokens + tile - 1) / tile * tile;
}

void Linear::launch(cudaStream_t stream, const LinearArgs* ops, int count, int tile_tokens) {
  const bool fp8_tokens = ops[0].fp8_tokens;
  GemmChain chain = {};
  chain.count = count;
  chain.quantizes = ops[0].quantized_x != nullptr;
  chain.grid_barrier = grid_barrier_.data();
  chain.barrier_base = barrier_base_;
  for (int i = 0; i < count; ++i) {
    LinearArgs& args = chain.ops[i];
    args = ops[i];
    const int columns = args.tiles.chunks * format_info(format_).columns;
    args.tile_blocks = kTileBlocks;
    args.row_tiles = (args.tiles.blocks + kTileBlocks - 1) / kTileBlocks;
    args.k_steps = (columns + kStepColumns - 1) / kStepColumns;
    if (fp8_tokens) check_fp8_tokens(format_, args, tile_tokens, i == 0);
    if (args.fp8_tokens != fp8_tokens || (!fp8_tokens && (args.quantized_x || args.fp8_out))) {
      throw Error("a chain of GEMMs with activations in E4M3 and in bf16");
    }
    args.partials = partials_.data();
    args.ready = ready_.data();
    if (++epoch_ == 0) ++epoch_;  // 0: never written
    args.epoch = epoch_;
    choose_split(args, args.padded / tile_tokens, tile_tokens, sms_);
    choose_pairs(args, format_, args.padded / tile_tokens, tile_tokens, sms_);
    args.weights = weight_map(format_, args.tiles, args.matrix, args.matrices, args.tile_blocks,
                              box_steps(format_, tile_tokens, fp8_tokens) * kStepColumns);
  }
  if (count == 1 && has_prefill_gemm(chain.ops[0], tile_tokens)) {
    return prefill_gemm(stream, format_, sms_, chain.ops[0]);
  }
  const Launch launch =
      fp8_tokens ? launch_linear_format<WeightFormat::fp8, true> : launch_of(format_);
  launch(stream, sms_, tile_tokens, chain);
  barrier_base_ += unsigned(sms_ * (chain.count - 1 + chain.quantizes));
}

}  // namespace ridge::cuda
