#include <algorithm>

#include "engine/cuda/device.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/gemm/skinny_gemm_kernel.cuh"

namespace ridge::cuda {
namespace {

template <WeightFormat kFormat, int kGroups>
void launch(cudaStream_t stream, int sms, SkinnyGemmArgs args) {
  // Two copies in flight per warp: a third cost the expert GEMMs of qwen3-30b-a3b in fp8 3 to 7 %.
  // But where a unit is two copies, the next unit's first must be in flight too: without it
  // mixtral-8x7b's gate_up lost 13 %.
  const bool two_copies = args.tiles.chunks == args.split_k * 2 * kCopyChunks;
  args.slots = std::min(two_copies ? 3 : 2, SkinnyShared<kFormat, kGroups>::kSlots);
  const int warp_groups = kSkinnyWarps / args.split_k;
  const int tiles = args.tile_count ? args.padded / kSkinnyTile : 1;  // at most
  const int rounds = (tiles * args.tiles.blocks + warp_groups - 1) / warp_groups;
  constexpr int kShared = sizeof(SkinnyShared<kFormat, kGroups>);
  [[maybe_unused]] static const bool ready =
      allow_shared_memory(skinny_gemm_kernel<kFormat, kGroups>, kShared);
  launch_dependent(skinny_gemm_kernel<kFormat, kGroups>,
                   dim3(std::min(rounds, sms * kSkinnyBlocksPerSm)), kSkinnyThreads, kShared,
                   stream, args);
}

template <WeightFormat kFormat>
void launch_format(cudaStream_t stream, int sms, const SkinnyGemmArgs& args) {
  if (args.tile_count || args.tokens <= 8) return launch<kFormat, 1>(stream, sms, args);
  launch<kFormat, 2>(stream, sms, args);
}

}  // namespace

void skinny_gemm(cudaStream_t stream, WeightFormat format, int sms, SkinnyGemmArgs args) {
  // One K range per warp, but fewer for a short K, as long as the tokens of a range stay in
  // registers.
  args.split_k = kSkinnyWarps;
  const int chunks = args.tiles.chunks;
  while (args.split_k > 1 && chunks < args.split_k * kCopyChunks &&
         2 * chunks <= args.split_k * held_chunks(format, 1)) {
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
  }
}

}  // namespace ridge::cuda
