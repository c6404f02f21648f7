// The decode kernel and its launcher.
//
// Shape: for each GEMM of a step, Y[N x rows] = W[N x K] X[K x rows] with rows <= 8. The weights
// are the A operand in 16-row blocks (tiles.cuh) and the rows of the batch are columns of B, with
// norms after blocks two columns each (decode_post_norm.cuh). The
// 16-row blocks of all operators are dealt to the SMs round robin (decode_schedule.cuh). Attention
// is flash decoding over KV pages (decode_page_attention.cuh). Experts: decode_router.cuh.
//
// One thread block per SM stays for the whole launch. Its 12 warps have roles:
//   0-7   math      (decode_math.cuh)      MMA with K split over the warps; attention
//   8     producer  (decode_producer.cuh)  fills the ring with this SM's weights and KV pages, in
//                                          the order of use, across operators and layers
//   9-11  epilogue  (decode_epilogue.cuh)  reduces the 8 partial sums of a block and stores the
//                                          result; warp 9 takes part in the grid barrier
//
// Shared memory, all that a block can have: 227 KB on Hopper, 99 to 227 KB on other cards:
//   +----------------+---------------------------------------------------------+
//   | DecodeControl  | barriers, small tables                                  |
//   | ring           | stages x 32 chunks of weights or KV pages, 16 KB each   |
//   | activations    | K x columns as MMA operands, or a slice of K            |
//   | group scales   | f16 and int8x2 operands: [group of 64 columns][column]  |
//   | nf4 levels     | 32 KB, nf4 with 2 rows or more                          |
//   | partials       | [3 buffers][8 warps][columns][16] floats                |
//   | rope           | [table][rows][head_dim / 2] cos, sin                    |
//   | head norms     | [2][head_dim] weights of the norms of queries and keys  |
//   +----------------+---------------------------------------------------------+
//
// Who waits for whom (rules and invariants: decode_sync.cuh):
//   producer --full--> math --partials_full--> epilogue --grid barrier, data--> math of other SMs
//   producer <-empty-- math <-partials_empty-- epilogue
#pragma once

#include <algorithm>

#include "engine/cuda/decode/decode_epilogue.cuh"
#include "engine/cuda/decode/decode_math.cuh"
#include "engine/cuda/decode/decode_producer.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/device_limits.h"
#include "engine/cuda/layout/dequantize.cuh"

namespace ridge::cuda {

#ifdef __CUDA_ARCH__

__device__ inline void init_barriers(const DecodeArgs& args, DecodeControl& control) {
  // The lane that issues a bulk copy arrives, or all that copied by cp.async.
  const int copiers = args.kernels == KernelSet::hopper ? 1 : 32;
  for (int s = 0; s < args.stages; ++s) {
    ptx::mbarrier_init(&control.full[s], copiers);
    ptx::mbarrier_init(&control.empty[s], kMathWarps);
  }
  for (int s = 0; s < kPartialBuffers; ++s) {
    ptx::mbarrier_init(&control.partials_full[s], kMathWarps);
    ptx::mbarrier_init(&control.partials_empty[s], 1);
  }
  ptx::mbarrier_init(&control.attention_done, 1);
  control.ops_completed = 0;
  ptx::fence_mbarrier_init();
}

// What a thread block does.
template <WeightFormat kFormat, int kRows, DecodeVariant kVariant, KernelSet kKernels>
__device__ __forceinline__ void decode_block(const DecodeArgs& args) {
  extern __shared__ __align__(128) uint8_t raw[];
  DecodeControl& control = *reinterpret_cast<DecodeControl*>(raw);
  DecodeShared shared{control, raw + (sizeof(DecodeControl) + 127) / 128 * 128,
                      nullptr, nullptr,
                      nullptr, nullptr,
                      nullptr, nullptr};
  shared.activations = shared.ring + args.stages * stage_bytes(kFormat);
  shared.group_scales = reinterpret_cast<GroupScale*>(shared.activations + args.activation_bytes);
  shared.levels =
      reinterpret_cast<uint32_t*>(shared.activations + args.activation_bytes +
                                  group_scale_bytes(kFormat, kRows, args.activation_bytes));
  shared.partials = reinterpret_cast<float*>(shared.levels + level_bytes(kFormat, kRows) / 4);
  shared.rope = reinterpret_cast<float2*>(reinterpret_cast<uint8_t*>(shared.partials) +
                                          partial_bytes(input_columns(kVariant, kRows)));
  shared.head_norms =
      reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(shared.rope) + rope_bytes(args, kRows));
  if (threadIdx.x == 0) init_barriers(args, control);
  if (threadIdx.x < args.row_count) {
    control.rows[threadIdx.x] = args.rows[threadIdx.x];
    control.token[threadIdx.x] = args.tokens[threadIdx.x];
  }
  if (level_bytes(kFormat, kRows) > 0) {
    constexpr Nf4 kLevels = kNf4;
    for (int i = threadIdx.x; i < kLevelBytes / 4; i += kThreads) {
      shared.levels[i] = kLevels.f16[i / 32 % 16] | uint32_t{kLevels.f16[i / 512]} << 16;
    }
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < kMathWarps) {
    MathWarp<kFormat, kRows, kVariant>{args, shared, warp, lane}.run();
  } else if (warp == kMathWarps) {
    ProducerWarp<kFormat, kRows, kVariant, kKernels>{args, shared}.run(lane);
  } else {
    EpilogueWarp<kFormat, kRows, kVariant, kKernels>{args, shared, lane, warp - kMathWarps - 1}
        .run();
  }
}

#endif

template <WeightFormat kFormat, int kRows, DecodeVariant kVariant, KernelSet kKernels>
__global__ void __launch_bounds__(kThreads, 1) decode(const __grid_constant__ DecodeArgs args) {
#if defined(RIDGE_HOPPER)
  decode_block<kFormat, kRows, kVariant, kKernels>(args);
#elif defined(__CUDA_ARCH__)
  if constexpr (kKernels == KernelSet::portable) {
    decode_block<kFormat, kRows, kVariant, kKernels>(args);
  }
#endif
}

// Divides shared memory: all activations where they fit, the rest for the ring.
template <WeightFormat kFormat, int kRows, DecodeVariant kVariant, KernelSet kKernels>
void launch_decode_rows(cudaStream_t stream, int sms, DecodeArgs args) {
  const DeviceLimits& device = device_limits();
  constexpr bool kExperts = kVariant == DecodeVariant::experts;
  int chunks = 0;
  for (const Tiles* tiles : {&args.qkv, &args.out, &args.gate_up, &args.down, &args.head}) {
    chunks = tiles->chunks > chunks ? tiles->chunks : chunks;
  }
  int whole = chunks * activation_chunk_bytes(kFormat, kRows);
  constexpr int kInputColumns = input_columns(kVariant, kRows);
  whole = std::max(whole, args.qkv.chunks * activation_chunk_bytes(kFormat, kInputColumns));
  if (kExperts) whole = std::max(whole, args.top_k * args.choice_stride * kRows * 2);
  const int most = kMaxColumns * 2;
  const int least = attention_state_bytes(args);
  args.activation_bytes = whole < most ? whole : most;
  if (args.activation_bytes < least) args.activation_bytes = least;
  args.activation_bytes = (args.activation_bytes + 127) / 128 * 128;
  const int besides_ring = (int(sizeof(DecodeControl)) + 127) / 128 * 128 + args.activation_bytes +
                           group_scale_bytes(kFormat, kRows, args.activation_bytes) +
                           level_bytes(kFormat, kRows) + int(partial_bytes(kInputColumns)) +
                           rope_bytes(args, kRows) + head_norm_bytes(args);
  constexpr int kStage = stage_bytes(kFormat);
  args.group = args.heads / args.kv_heads;
  args.stages = std::min((device.shared_bytes - besides_ring) / kStage, kMaxStages);
  args.max_splits = sms / args.kv_heads > 1 ? sms / args.kv_heads : 1;
  args.max_run_splits = args.activation_bytes / least;
  const int items[8] = {
      args.hidden / kBlockRows, args.qkv.blocks, 0,
      args.out.blocks,          args.experts,    (kExperts ? args.top_k : 1) * args.gate_up.blocks,
      args.down.blocks,         args.head.blocks};
  for (int kind = 0; kind < 8; ++kind) args.block_remainder[kind] = items[kind] % sms;
  args.copies_in_flight = std::min(copies_in_flight(kFormat, kKernels), args.stages);
  // 60 % of L2, 32 of Hopper's 50 MB, at the rate of the memory.
  args.stages_prefetched = int(0.6 * device.l2_bytes / (double(sms) * kStage));
  args.clocks_per_stage = unsigned(double(sms) * kStage / device.bytes_per_clock);
  const auto kernel = decode<kFormat, kRows, kVariant, kKernels>;
  allow_shared_memory(kernel, device.shared_bytes);
  void* arguments[] = {&args};
  check(
      cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(sms), dim3(kThreads),
                                  arguments, besides_ring + args.stages * kStage, stream),
      "launching the decode kernel");
}

template <WeightFormat kFormat, KernelSet kKernels>
void launch_decode_format(cudaStream_t stream, int sms, const DecodeArgs& args) {
  constexpr DecodeVariant kDense = DecodeVariant::dense;
  if (args.variant == DecodeVariant::experts) {
    return launch_decode_rows<kFormat, 1, DecodeVariant::experts, kKernels>(stream, sms, args);
  }
  const int rows = padded_rows(args.row_count, kKernels);
  if (rows == 1) return launch_decode_rows<kFormat, 1, kDense, kKernels>(stream, sms, args);
  if constexpr (kKernels == KernelSet::hopper) {
    if (rows == 2) return launch_decode_rows<kFormat, 2, kDense, kKernels>(stream, sms, args);
    if (rows == 4) return launch_decode_rows<kFormat, 4, kDense, kKernels>(stream, sms, args);
  }
  return launch_decode_rows<kFormat, 8, kDense, kKernels>(stream, sms, args);
}

template <WeightFormat kFormat>
void launch_decode_gemma(cudaStream_t stream, int sms, const DecodeArgs& args) {
  constexpr DecodeVariant kGemma = DecodeVariant::gemma;
  constexpr KernelSet kHopper = KernelSet::hopper;
  const int rows = padded_rows(args.row_count, kHopper);
  if (rows == 1) return launch_decode_rows<kFormat, 1, kGemma, kHopper>(stream, sms, args);
  if (rows == 2) return launch_decode_rows<kFormat, 2, kGemma, kHopper>(stream, sms, args);
  launch_decode_rows<kFormat, kMaxGemmaRows, kGemma, kHopper>(stream, sms, args);
}

}  // namespace ridge::cuda
