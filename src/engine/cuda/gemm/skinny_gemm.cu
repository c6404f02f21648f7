#include <algorithm>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/gemm/skinny_gemm_kernel.cuh"

namespace ridge::cuda {
namespace {

template <WeightFormat kFormat, int kGroups, int kHeld>
void launch(cudaStream_t stream, int sms, const SkinnyGemmArgs& args) {
  const auto kernel = skinny_gemm_kernel<kFormat, kGroups, kHeld>;
  const int warp_groups = kSkinnyWarps / args.split_k;
  const int tiles = args.tile_count ? args.padded / kSkinnyTile : 1;  // at most
  const int rounds = (tiles * args.tiles.blocks + warp_groups - 1) / warp_groups;
  constexpr int kShared = sizeof(SkinnyShared<kFormat, kGroups>);
  [[maybe_unused]] static const bool ready = allow_shared_memory(kernel, kShared);
  launch_dependent(kernel, dim3(std::min(rounds, sms * kSkinnyBlocksPerSm)), kSkinnyThreads,
                   kShared, stream, args);
}

template <WeightFormat kFormat>
void launch_format(cudaStream_t stream, int sms, const SkinnyGemmArgs& args) {
  constexpr int kShort = held_chunks(kFormat, 1, 32), kLong = held_chunks(kFormat, 1, 64);
  if (!args.tile_count && args.tokens > 8) {
    return launch<kFormat, 2, held_chunks(kFormat, 2, 32)>(stream, sms, args);
  }
  // 32 registers of tokens leave enough to load four chunks ahead. A longer K range has fewer
  // segments, and so fewer loads of tokens, with 64.
  if (args.tiles.chunks <= args.split_k * kShort) {
    return launch<kFormat, 1, kShort>(stream, sms, args);
  }
  launch<kFormat, 1, kLong>(stream, sms, args);
}

}  // namespace

void skinny_gemm(cudaStream_t stream, WeightFormat format, int sms, SkinnyGemmArgs args) {
  // One K range per warp, but fewer for a short K, as long as the tokens of a range stay in
  // registers.
  args.split_k = kSkinnyWarps;
  const int chunks = args.tiles.chunks;
  while (args.split_k > 1 && chunks < args.split_k * kCopyChunks &&
         2 * chunks <= args.split_k * held_chunks(format, 1, 32)) {
    args.split_k /= 2;
  }
  if (!args.gathers) args.x_padded = args.padded;
  switch (format) {
    case WeightFormat::bf16:
      return launch_format<WeightFormat::bf16>(stream, sms, args);
    case WeightFormat::fp8:
      return launch_format<WeightFormat::fp8>(stream, sms, args);
    case WeightFormat::int8:
      return launch_format<WeightFormat::int8>(stream, sms, args);
    case WeightFormat::int4:
      return launch_format<WeightFormat::int4>(stream, sms, args);
    case WeightFormat::nf4:
      return launch_format<WeightFormat::nf4>(stream, sms, args);
    case WeightFormat::mxfp4:
      return launch_format<WeightFormat::mxfp4>(stream, sms, args);
  }
}

}  // namespace ridge::cuda
