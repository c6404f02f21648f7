#include <cudaTypedefs.h>

#include <algorithm>

#include "base/error.h"
#include "engine/cuda/gemm/linear_layout.cuh"

namespace ridge::cuda {

template <WeightFormat kFormat>
void launch_linear_format(cudaStream_t stream, int grid, int tile_tokens, const GemmChain& chain);

namespace {

constexpr int kMaxTileTokens = 256;

using Launch = void (*)(cudaStream_t, int, int, const GemmChain&);
Launch launch_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return launch_linear_format<WeightFormat::bf16>;
    case WeightFormat::fp8:
      return launch_linear_format<WeightFormat::fp8>;
    case WeightFormat::int8:
      return launch_linear_format<WeightFormat::int8>;
    case WeightFormat::int4:
      return launch_linear_format<WeightFormat::int4>;
    case WeightFormat::nf4:
      return launch_linear_format<WeightFormat::nf4>;
  }
  throw Error("no GEMM for this format");
}

// Looked up at run time: a program linked with the driver would not start where there is none.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "looking up cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess) throw Error("the driver has no tensor maps");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// Tensor map of the weights: boxes of 8 blocks x one or two steps of K, in units of 8 bytes.
CUtensorMap weight_map(WeightFormat format, const LinearArgs& args, int tile_tokens) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = tensor_map_encoder();
  const FormatInfo info = format_info(format);
  const uint64_t row = uint64_t(args.tiles.chunks) * info.chunk_bytes;
  const cuuint64_t sizes[] = {row / 8, cuuint64_t(args.tiles.blocks), cuuint64_t(args.matrices)};
  const cuuint64_t strides[] = {row, args.tiles.stride};
  const int step = kStepColumns / info.columns * info.chunk_bytes;
  const cuuint32_t box[] = {cuuint32_t(box_steps(format, tile_tokens) * step / 8), kTileBlocks, 1};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 3,
             const_cast<uint8_t*>(args.tiles.data + args.tiles.stride * args.matrix), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw Error("the driver refused a tensor map ({})", int(result));
  return map;
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

}  // namespace

Linear::Linear(WeightFormat format, int sms)
    : format_(format),
      sms_(sms),
      partials_(size_t(sms) * kTileRows * kMaxTileTokens),
      ready_(size_t(sms) * kTileBlocks),
      grid_barrier_(1) {
  ready_.fill_bytes(0);
  grid_barrier_.fill_bytes(0);
}

int Linear::tile_tokens(int tokens) {
  return tokens <= 32 ? 32 : tokens <= 64 ? 64 : tokens <= 128 ? 128 : 256;
}

int Linear::padded(int tokens) {
  const int tile = tile_tokens(tokens);
  return (tokens + tile - 1) / tile * tile;
}

void Linear::launch(cudaStream_t stream, const LinearArgs* ops, int count, int tile_tokens) {
  GemmChain chain = {};
  chain.count = count;
  chain.grid_barrier = grid_barrier_.data();
  chain.barrier_base = barrier_base_;
  for (int i = 0; i < count; ++i) {
    LinearArgs& args = chain.ops[i];
    args = ops[i];
    const int columns = args.tiles.chunks * format_info(format_).columns;
    args.row_tiles = (args.tiles.blocks * kBlockRows + kTileRows - 1) / kTileRows;
    args.k_steps = (columns + kStepColumns - 1) / kStepColumns;
    args.weights = weight_map(format_, args, tile_tokens);
    args.partials = partials_.data();
    args.ready = ready_.data();
    args.epoch = ++epoch_;
    choose_split(args, args.padded / tile_tokens, tile_tokens, sms_);
  }
  launch_of(format_)(stream, sms_, tile_tokens, chain);
  barrier_base_ += unsigned(sms_ * (chain.count - 1));
}

}  // namespace ridge::cuda
