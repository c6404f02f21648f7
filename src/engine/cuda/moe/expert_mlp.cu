#include "engine/cuda/moe/expert_mlp.cuh"
#include "engine/cuda/moe/expert_mlp_kernel.cuh"

namespace ridge::cuda {
namespace {

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

ExpertGemm cut(WeightFormat format, const Tiles& tiles) {
  const int most = kSlabChunks, step = 64 / format_info(format).columns;
  ExpertGemm gemm = {tiles, 1, most, 1, 0};
  while (gemm.split < kGroupWarps && gemm.split * most < tiles.chunks) gemm.split *= 2;
  if (gemm.split * most >= tiles.chunks) {
    gemm.warp_chunks = round_up((tiles.chunks + gemm.split - 1) / gemm.split, step);
  } else {
    gemm.slabs = (tiles.chunks + gemm.split * most - 1) / (gemm.split * most);
    // A warp group may pass over all slabs of the other one's item before it reads the next of its
    // own.
    if (gemm.slabs > kItemRing / 2) throw Error("experts: a K of {} chunks", tiles.chunks);
  }
  const int blocks = kGroupWarps / gemm.split;  // of an item
  gemm.items = (tiles.blocks + blocks - 1) / blocks;
  return gemm;
}

template <WeightFormat kFormat>
void launch_format(cudaStream_t stream, int sms, const ExpertMlpLaunch& launch) {
  const auto kernel = expert_mlp_kernel<kFormat>;
  constexpr int kShared = sizeof(ExpertShared<kFormat>);
  static_assert(kShared <= 227 * 1024);
  [[maybe_unused]] static const bool ready = allow_shared_memory(kernel, kShared);
  launch_dependent(kernel, dim3(sms), kExpertThreads, kShared, stream, launch);
}

// Columns of the activations that no row of gate_up gives are zero, in all launches.
__global__ void fill_activated(uint32_t* to, int words_per_tile, int tiles, int columns) {
  const size_t count = size_t(words_per_tile) * tiles;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    const int column = int(i / (size_t(tiles) * 256)) * 64 + int(i % 256) / 32 * 8;
    to[i] = column < columns ? kNotReady : 0;
  }
}

}  // namespace

bool ExpertMlp::covers(WeightFormat format) { return has_row_scale(format); }

ExpertMlp::ExpertMlp(WeightFormat format, int sms, int columns, int slots)
    : format_(format),
      sms_(sms),
      columns_(round_up(columns, 8)),
      capacity_(round_up(slots, kSkinnyTile)) {
  const int padded = round_up(columns_, 64);
  for (DeviceBuffer<uint16_t>& each : activated_) {
    each = DeviceBuffer<uint16_t>(size_t(padded) * capacity_);
    fill_activated<<<256, 256>>>(reinterpret_cast<uint32_t*>(each.data()), padded * 4,
                                 capacity_ / kSkinnyTile, columns_);
  }
  check(cudaGetLastError(), "filling");
  check(cudaStreamSynchronize(nullptr), "filling");
}

size_t ExpertMlp::memory_bytes(int columns, int slots) {
  return size_t(2) * round_up(columns, 64) * round_up(slots, kSkinnyTile) * sizeof(uint16_t);
}

void ExpertMlp::launch(cudaStream_t stream, const ExpertMlpArgs& args) {
  if (args.slots > capacity_ ||
      (args.routes && args.routing.tokens * args.routing.experts > kMaxRoutedLogits)) {
    throw Error("experts: a step of {} slots", args.slots);
  }
  ExpertMlpLaunch launch = {};
  launch.args = args;
  launch.gemm[0] = cut(format_, args.gate_up), launch.gemm[1] = cut(format_, args.down);
  launch.capacity = capacity_;
  launch.activated = activated_[next_].data(), launch.reset = activated_[next_ ^ 1].data();
  launch.reset_tiles = used_tiles_[next_ ^ 1];
  used_tiles_[next_] = args.slots / kSkinnyTile, used_tiles_[next_ ^ 1] = 0, next_ ^= 1;
  format_ == WeightFormat::fp8 ? launch_format<WeightFormat::fp8>(stream, sms_, launch)
                               : launch_format<WeightFormat::int8>(stream, sms_, launch);
}

}  // namespace ridge::cuda
