#include <algorithm>

#include "engine/cuda/portable/gemm.cuh"
#include "engine/cuda/portable/launch.cuh"
#include "engine/cuda/portable/skinny_kernel.cuh"
#include "engine/cuda/portable/tiled_kernel.cuh"

namespace ridge::cuda {
namespace {

constexpr int kBlocksPerSm = 2;    // of the tiled kernel
constexpr int kMinSplitSteps = 8;  // of K in a range: fewer do not repay the exchange of sums

template <WeightFormat kFormat, int kGroups>
void launch_skinny(cudaStream_t stream, const LinearArgs& args) {
  const int tiles = args.tile_count ? args.padded / (8 * kGroups) : 1;  // at most
  // A quarter of the memory of an SM is enough for the sums; the rest is L1 for the tokens.
  [[maybe_unused]] static const bool ready = [] {
    check(cudaFuncSetAttribute(portable_skinny_kernel<kFormat, kGroups>,
                               cudaFuncAttributePreferredSharedMemoryCarveout, 25),
          "setting the shared memory carveout");
    return true;
  }();
  launch_in_order(portable_skinny_kernel<kFormat, kGroups>, dim3(args.tiles.blocks, tiles),
                  kPortableSkinnyWarps * 32, 0, stream, args);
}

template <WeightFormat kFormat, int kTokens>
void launch_tiled(cudaStream_t stream, const LinearArgs& args) {
  using Tile = PortableTile<kFormat, kTokens>;
  launch_in_order(portable_tiled_kernel<kFormat, kTokens>,
                  dim3(args.row_tiles * (args.padded / kTokens), args.split_k), kPortableThreads,
                  size_t(Tile::kStages) * Tile::kStageBytes, stream, args);
}

template <WeightFormat kFormat>
void launch_format(cudaStream_t stream, const LinearArgs& args, int tile_tokens) {
  switch (tile_tokens) {
    case 8:
      return launch_skinny<kFormat, 1>(stream, args);
    case 16:
      return launch_skinny<kFormat, 2>(stream, args);
    case 32:
      return launch_tiled<kFormat, 32>(stream, args);
    case 64:
      return launch_tiled<kFormat, 64>(stream, args);
    case 128:
      return launch_tiled<kFormat, 128>(stream, args);
  }
  throw Error("no GEMM of {} tokens", tile_tokens);
}

}  // namespace

PortableGemm::PortableGemm(int sms)
    : sms_(sms),
      partials_(memory_bytes(sms) / sizeof(float)),
      arrived_(size_t(sms) * kBlocksPerSm) {
  arrived_.fill_bytes(0);
}

size_t PortableGemm::memory_bytes(int sms) {
  return size_t(sms) * kBlocksPerSm * kPortableTileRows * 128 * sizeof(float);
}

int PortableGemm::tile_tokens(int tokens) {
  return tokens <= 8 ? 8 : tokens <= 16 ? 16 : std::min(128, Linear::tile_tokens(tokens));
}

void PortableGemm::launch(cudaStream_t stream, WeightFormat format, LinearArgs args,
                          int tile_tokens) {
  const int columns = args.tiles.chunks * format_info(format).columns;
  args.row_tiles = (args.tiles.blocks + kPortableTileBlocks - 1) / kPortableTileBlocks;
  args.k_steps = (columns + portable_step(format) - 1) / portable_step(format);
  args.partials = partials_.data(), args.ready = arrived_.data();
  args.split_k = 1;
  if (tile_tokens > 16 && !args.tile_count) {
    const int tiles = args.row_tiles * (args.padded / tile_tokens);
    args.split_k =
        std::max(1, std::min(sms_ * kBlocksPerSm / tiles, args.k_steps / kMinSplitSteps));
  }
  switch (format) {
    case WeightFormat::bf16:
      return launch_format<WeightFormat::bf16>(stream, args, tile_tokens);
    case WeightFormat::fp8:
      return launch_format<WeightFormat::fp8>(stream, args, tile_tokens);
    case WeightFormat::int8:
      return launch_format<WeightFormat::int8>(stream, args, tile_tokens);
    case WeightFormat::int4:
      return launch_format<WeightFormat::int4>(stream, args, tile_tokens);
    case WeightFormat::nf4:
      return launch_format<WeightFormat::nf4>(stream, args, tile_tokens);
    case WeightFormat::mxfp4:
      return launch_format<WeightFormat::mxfp4>(stream, args, tile_tokens);
  }
}

}  // namespace ridge::cuda
