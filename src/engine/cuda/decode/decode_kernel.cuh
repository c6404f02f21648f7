// The decode kernel: sets up shared memory and hands each warp its role.
#pragma once

#include "engine/cuda/decode/decode_epilogue.cuh"
#include "engine/cuda/decode/decode_math.cuh"
#include "engine/cuda/decode/decode_producer.cuh"
#include "engine/cuda/device.cuh"

namespace ridge::cuda {

template <WeightFormat kFormat, int kRows>
__global__ void __launch_bounds__(kThreads, 1) decode(const __grid_constant__ DecodeArgs args) {
#ifdef RIDGE_HOPPER
  extern __shared__ __align__(128) uint8_t raw[];
  Fixed& fixed = *reinterpret_cast<Fixed*>(raw);
  Shared shared{fixed,  raw + (sizeof(Fixed) + 127) / 128 * 128, nullptr, nullptr, nullptr, nullptr,
                nullptr};
  shared.x = shared.ring + args.stages * stage_bytes(kFormat);
  shared.undo = reinterpret_cast<Undo*>(shared.x + args.activation_bytes);
  shared.levels = reinterpret_cast<uint32_t*>(shared.x + args.activation_bytes +
                                              undo_bytes(kFormat, kRows, args.activation_bytes));
  shared.sums = reinterpret_cast<float*>(shared.levels + level_bytes(kFormat) / 4);
  shared.rotation =
      reinterpret_cast<float2*>(reinterpret_cast<uint8_t*>(shared.sums) + sum_bytes(kRows));
  if (threadIdx.x == 0) {
    for (int s = 0; s < args.stages; ++s) {
      ptx::mbarrier_init(&fixed.full[s], 1);
      ptx::mbarrier_init(&fixed.empty[s], kConsumers);
    }
    for (int s = 0; s < kSums; ++s) {
      ptx::mbarrier_init(&fixed.sum_full[s], kConsumers);
      ptx::mbarrier_init(&fixed.sum_free[s], 1);
    }
    ptx::mbarrier_init(&fixed.attention_done, 1);
    fixed.met = 0;
    ptx::fence_mbarrier_init();
  }
  if (threadIdx.x < args.row_count) {
    fixed.rows[threadIdx.x] = args.rows[threadIdx.x];
    fixed.token[threadIdx.x] = args.tokens[threadIdx.x];
  }
  if (kFormat == WeightFormat::nf4) {
    constexpr Nf4 kLevels = kNf4;
    for (int i = threadIdx.x; i < kLevelBytes / 4; i += kThreads) {
      shared.levels[i] = kLevels.f16[i / 32 % 16] | uint32_t{kLevels.f16[i / 512]} << 16;
    }
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < kConsumers) {
    Multiplier<kFormat, kRows>{args, shared, warp, lane}.run();
  } else if (warp == kConsumers) {
    Fetcher<kFormat, kRows>{args, shared}.run(lane);
  } else {
    Finisher<kFormat, kRows>{args, shared, lane, warp - kConsumers - 1}.run();
  }
#endif
}

// 227 KB: the most a block may have on Hopper.
constexpr int kSharedBytes = 232448;

// Shares out shared memory: activations whole where they fit beside a deep ring.
template <WeightFormat kFormat, int kRows>
void launch_decode_of(cudaStream_t stream, int sms, DecodeArgs args) {
  int chunks = 0;
  for (const Tiles* tiles : {&args.qkv, &args.out, &args.gate_up, &args.down, &args.head}) {
    chunks = tiles->chunks > chunks ? tiles->chunks : chunks;
  }
  const int whole = chunks * x_chunk_bytes(kFormat, kRows);
  const int most = kMostColumns * 2;
  const int least =
      args.heads / args.kv_heads * (args.head_dim + 8) * 4 * kConsumers;  // attention's
  args.activation_bytes = whole < most ? whole : most;
  if (args.activation_bytes < least) args.activation_bytes = least;
  args.activation_bytes = (args.activation_bytes + 127) / 128 * 128;
  const int fixed = (int(sizeof(Fixed)) + 127) / 128 * 128 + args.activation_bytes +
                    undo_bytes(kFormat, kRows, args.activation_bytes) + level_bytes(kFormat) +
                    int(sum_bytes(kRows)) + kRows * args.head_dim / 2 * 8;
  args.stages = (kSharedBytes - fixed) / stage_bytes(kFormat);
  if (args.stages > kMaxSlots) args.stages = kMaxSlots;
  args.max_splits = sms / args.kv_heads > 1 ? sms / args.kv_heads : 1;
  const int items[7] = {args.hidden / kBlockRows, args.qkv.blocks,     0,
                        args.out.blocks,          args.gate_up.blocks, args.down.blocks,
                        args.head.blocks};
  for (int kind = 0; kind < 7; ++kind) args.block_remainder[kind] = items[kind] % sms;
  args.copies_in_flight = kInFlight;
  const auto kernel = decode<kFormat, kRows>;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "asking for shared memory");
  void* arguments[] = {&args};
  check(
      cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(sms), dim3(kThreads),
                                  arguments, fixed + args.stages * stage_bytes(kFormat), stream),
      "launching the decode kernel");
}

template <WeightFormat kFormat>
void launch_decode_as(cudaStream_t stream, int sms, const DecodeArgs& args) {
  switch (padded_rows(args.row_count)) {
    case 1:
      return launch_decode_of<kFormat, 1>(stream, sms, args);
    case 2:
      return launch_decode_of<kFormat, 2>(stream, sms, args);
    case 4:
      return launch_decode_of<kFormat, 4>(stream, sms, args);
    default:
      return launch_decode_of<kFormat, 8>(stream, sms, args);
  }
}

}  // namespace ridge::cuda
