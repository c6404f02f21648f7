#include <cudaTypedefs.h>

#include <algorithm>

#include "base/error.h"
#include "engine/cuda/gemm/linear_ring.cuh"

namespace ridge::cuda {

template <WeightFormat kFormat>
void launch_linear_of(cudaStream_t stream, int grid, int tile_tokens, const Chain& chain);

namespace {

constexpr int kMostTokens = 256;

using Launch = void (*)(cudaStream_t, int, int, const Chain&);
Launch launch_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return launch_linear_of<WeightFormat::bf16>;
    case WeightFormat::fp8:
      return launch_linear_of<WeightFormat::fp8>;
    case WeightFormat::int8:
      return launch_linear_of<WeightFormat::int8>;
    case WeightFormat::int4:
      return launch_linear_of<WeightFormat::int4>;
    case WeightFormat::nf4:
      return launch_linear_of<WeightFormat::nf4>;
  }
  throw Error("no product for this format");
}

// The driver's function, without linking the driver: the program starts where there is none.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "asking the driver for tensor maps");
  if (found != cudaDriverEntryPointSuccess) throw Error("the driver has no tensor maps");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// Boxes of 8 blocks x a step or two, in units of 8 bytes.
CUtensorMap map_of(WeightFormat format, const LinearArgs& args, int tile_tokens) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
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

}  // namespace

Linear::Linear(WeightFormat format, int sms)
    : format_(format),
      sms_(sms),
      partial_(size_t(sms) * kTileRows * kMostTokens),
      done_(size_t(sms) * kTileBlocks),
      meeting_(1) {
  done_.fill_bytes(0);
  meeting_.fill_bytes(0);
}

int Linear::tile_tokens(int tokens) {
  return tokens <= 32 ? 32 : tokens <= 64 ? 64 : tokens <= 128 ? 128 : 256;
}

int Linear::padded(int tokens) {
  const int tile = tile_tokens(tokens);
  return (tokens + tile - 1) / tile * tile;
}

void Linear::launch(cudaStream_t stream, const std::vector<LinearArgs>& ops, int tile_tokens) {
  Chain chain = {};
  chain.count = int(ops.size());
  chain.meeting = meeting_.data();
  chain.met = met_;
  for (size_t i = 0; i < ops.size(); ++i) {
    LinearArgs& args = chain.ops[i];
    args = ops[i];
    const int columns = args.tiles.chunks * format_info(format_).columns;
    args.row_tiles = (args.tiles.blocks * kBlockRows + kTileRows - 1) / kTileRows;
    args.steps_of_k = (columns + kStepColumns - 1) / kStepColumns;
    args.weights = map_of(format_, args, tile_tokens);
    args.partial = partial_.data();
    args.done = done_.data();
    args.serial = ++serial_;
    // Whole tiles where they keep the SMs busy; handing over a part costs about 5 % of one.
    const int tiles = args.row_tiles * (args.padded / tile_tokens);
    const int rounds = (tiles + sms_ - 1) / sms_;
    args.split = args.tile_count == nullptr && tiles < 0.92 * rounds * sms_;
    // Where tiles cut evenly are no more for a block than even runs, its blocks finish it together.
    const int units = (args.steps_of_k + kUnit - 1) / kUnit;
    const int run = (tiles * units + sms_ - 1) / sms_;
    const int ways = (units + run - 1) / run;
    const bool even = args.split && tile_tokens <= kMaxChainedTokens && tiles * ways <= sms_;
    args.ways = even && ways >= kSlices ? ways : 0;
  }
  launch_of(format_)(stream, sms_, tile_tokens, chain);
  met_ += unsigned(sms_ * (chain.count - 1));
}

}  // namespace ridge::cuda
