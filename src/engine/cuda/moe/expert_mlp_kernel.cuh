// The kernel of expert_mlp.cuh. One thread block per SM:
//   warps 0-7, 8-15   math, two groups of eight warps, mma.m16n8k16: weights are A, the 8 slots of
//                     a tile are its columns
//   warp 16           producer: one bulk copy per item and slab, in the order of ExpertSchedule
//   warps 17, 18      epilogue, one per group
//
//   - An item is 8 / split adjacent row blocks (16 rows each) of one tile. `split` warps share a
//     row block, each with a part of K. A long K is cut into slabs of as many chunks as a group has
//     tokens of in registers; an item has one slot of the ring per slab.
//   - The producer announces in `items` what a slot holds and which group multiplies it: the groups
//     alternate. Tokens stay in registers from one item of a tile and slab to the next.
//   - The epilogue adds the parts of K in order.
//
//   ExpertShared
//   +--------------------------------------------------------------------------+
//   | ring[kSlots]: a slab of an item | row scales                 full, empty |
//   | items[kItemRing], issued: what the slots hold                            |
//   | sums[2 groups][kSumBuffers][8 warps][32 lanes]: sums of the parts of K   |
//   | row_scale[2 groups][kSumBuffers][row block of the item][16]              |
//   | finished[2 groups][kSumBuffers]: their item      sums_full, sums_empty   |
//   | expert_of[tile], token_of[slot]: the routing lists                       |
//   +--------------------------------------------------------------------------+
//
// Barriers:
//   issued                 producer -> math: a counter that it polls. An mbarrier distinguishes a
//                          phase from the next one only, and copies may arrive in any order: a warp
//                          may wait for a slot once its copy has been issued
//   full, empty [slot]     producer -> math, by transaction bytes; back by an arrival of each warp
//                          of the group
//   sums_full, sums_empty  math -> epilogue, an arrival of each warp; back by one
//
// Between SMs, data is the signal: an activation that is not written yet is kNotReady, and a warp
// polls the words that it multiplies. Two buffers alternate between launches. A launch resets what
// the one before used, which has ended.
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/memory_order.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/gemm/packed_chunks.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/moe/expert_mlp_layout.cuh"
#include "engine/cuda/moe/top_k.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

template <WeightFormat kFormat>
struct ExpertProducer {
  using Shared = ExpertShared<kFormat>;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  const ExpertMlpLaunch& launch;
  Shared& shared;
  PipelineState to = {};
  unsigned issued = 0;
  PipelineState sums_0 = {}, sums_1 = {};  // the next buffer of each warp group

  __device__ __forceinline__ void announce(const ExpertItem& item) {
    shared.items[issued % kItemRing] = item;
    asm volatile("" ::: "memory");
    *const_cast<volatile unsigned*>(&shared.issued) = ++issued;
  }

  __device__ __forceinline__ void run(ExpertSchedule schedule) {
    const uint64_t policy = ptx::createpolicy_evict_first();
    unsigned items_before = 0;
    while (schedule.next()) {
      const ExpertPass& pass = schedule.pass;
      const ExpertGemm& gemm = launch.gemm[pass.down];
      const int item_blocks = kGroupWarps / gemm.split, chunks = gemm.tiles.chunks;
      const int slab_chunks = gemm.split * gemm.warp_chunks;
      const int matrix = launch.args.matrix + shared.expert_of[pass.tile];
      const uint8_t* data = gemm.tiles.data + gemm.tiles.stride * matrix;
      const PipelineState first_0 = sums_0, first_1 = sums_1;
      for (int slab = 0; slab < pass.slabs; ++slab) {
        sums_0 = first_0, sums_1 = first_1;
        for (int i = 0; i < pass.items; ++i) {
          const int block = (pass.item + i) * item_blocks;
          const int count = min(item_blocks, gemm.tiles.blocks - block);
          // One slab: all chunks of `count` adjacent row blocks.
          const int copied =
              pass.slabs > 1 ? min(slab_chunks, chunks - slab * slab_chunks) : count * chunks;
          const bool scaled = slab == 0;
          const int bytes = copied * kChunkBytes, scale_bytes = scaled ? count * kBlockRows * 4 : 0;
          if (issued >= Shared::kInFlight) {
            const unsigned before = issued - Shared::kInFlight;
            ptx::mbarrier_wait(&shared.full[before % Shared::kSlots], before / Shared::kSlots & 1);
          }
          ptx::mbarrier_wait(&shared.empty[to.stage], to.phase ^ 1);
          uint64_t* full = &shared.full[to.stage];
          ptx::mbarrier_arrive_expect_tx(full, bytes + scale_bytes);
          ptx::cp_async_bulk(shared.ring[to.stage],
                             data + (size_t(block) * chunks + slab * slab_chunks) * kChunkBytes,
                             bytes, full, policy);
          if (scaled) {
            const int row = (matrix * gemm.tiles.blocks + block) * kBlockRows;
            ptx::cp_async_bulk(shared.ring[to.stage] + Shared::kWeightBytes,
                               gemm.tiles.row_scale + row, scale_bytes, full, policy);
          }
          to.advance(Shared::kSlots);
          const int warp_group = (items_before + i) % kExpertWarpGroups;
          const PipelineState buffer = warp_group ? sums_1 : sums_0;
          announce({(pass.tile << 8 | slab) << 1 | pass.down, block,
                    buffer.stage << 1 | int(buffer.phase),
                    warp_group | (slab == 0 ? ExpertItem::kFirst : 0) |
                        (slab == pass.slabs - 1 ? ExpertItem::kLast : 0)});
          if (warp_group == 0) sums_0.advance(kSumBuffers);
          if (warp_group == 1) sums_1.advance(kSumBuffers);
        }
      }
      items_before += pass.items;
    }
    announce({-1, sums_1.stage << 1 | int(sums_1.phase), sums_0.stage << 1 | int(sums_0.phase), 0});
  }
};

template <WeightFormat kFormat>
struct ExpertMath {
  using Shared = ExpertShared<kFormat>;
  static constexpr int kColumns = format_info(kFormat).columns;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  static constexpr int kStepChunks = 64 / kColumns;  // parts of K are multiples of 64 columns
  static constexpr int kChunks = kSlabChunks;
  static constexpr int kTogether = 4;      // chunks loaded from shared memory together
  using Fragments = uint2[kColumns / 16];  // B of a chunk

  const ExpertMlpLaunch& launch;
  Shared& shared;
  const int lane, warp_group, warp;  // warp: of its group
  Fragments tokens[kChunks];
  int held = -1;              // ExpertItem::key whose tokens are in registers
  int count = 0, offset = 0;  // this warp's chunks in the slot
  int group = 0, part = 0;    // its row block of the item, and its part of K

  // Where this lane's column of the MMA begins in the input, at the first chunk of this warp. A
  // column without a token reads another slot's.
  __device__ __forceinline__ const uint16_t* tokens_at(int down, int tile, int chunk,
                                                       int padded) const {
    const int first = tile * kSkinnyTile;
    int column = first + (shared.token_of[first + lane / 4] < 0 ? 0 : lane / 4);
    if (!down && !launch.args.x_by_slot) column = shared.token_of[column];
    const uint16_t* x = down ? launch.activated : launch.args.x;
    return x + wide_at(chunk * kColumns, column, padded) + lane % 4 * 2;
  }
  // This warp's part of the tokens of `key` into `to`.
  __device__ __forceinline__ void load(int key, Fragments (&to)[kChunks]) const {
    const int down = key & 1, slab = key >> 1 & 0xff, tile = key >> 9;
    const ExpertGemm& gemm = launch.gemm[down];
    const int chunk = (slab * gemm.split + (warp & gemm.split - 1)) * gemm.warp_chunks;
    const int count = min(gemm.warp_chunks, gemm.tiles.chunks - chunk);
    const int padded = down ? launch.capacity : launch.args.x_padded;
    const int stride = padded * 64;  // elements from 64 columns to the next 64
    const uint16_t* x = tokens_at(down, tile, chunk, padded);
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const uint16_t* at = x + j / kStepChunks * stride + j % kStepChunks * kColumns * 8;
#pragma unroll
      for (int s = 0; s < kColumns / 16; ++s) {
        if (j < count) {
          const auto* words = reinterpret_cast<const uint32_t*>(at + s * 128);
          to[j][s] = {ptx::ld_relaxed(words), ptx::ld_relaxed(words + 32)};
        }
      }
    }
  }
  // Makes the tokens of `key` those in registers, polling activations until all are there. fp8:
  // times 2^60, as dequantize_unscaled() wants it.
  __device__ __forceinline__ void hold_tokens(int key) {
    held = key;
    const int down = key & 1, slab = key >> 1 & 0xff;
    const ExpertGemm& gemm = launch.gemm[down];
    part = warp & gemm.split - 1, group = warp / gemm.split;
    const int first = (slab * gemm.split + part) * gemm.warp_chunks;
    count = min(gemm.warp_chunks, gemm.tiles.chunks - first);
    offset =
        ((gemm.slabs > 1 ? 0 : group * gemm.tiles.chunks) + part * gemm.warp_chunks) * kChunkBytes;
    load(key, tokens);
    while (down) {
      uint32_t largest = 0;
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
#pragma unroll
        for (int s = 0; s < kColumns / 16; ++s) {
          if (j < count) largest = max(largest, max(tokens[j][s].x, tokens[j][s].y));
        }
      }
      if (!__any_sync(0xffffffffu, largest == kNotReady)) break;
      load(key, tokens);
    }
    if constexpr (kFormat == WeightFormat::fp8) {
      const __nv_bfloat162 factor = pair_of(0x5d805d80u);
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
#pragma unroll
        for (int s = 0; s < kColumns / 16; ++s) {
          uint2& pairs = tokens[j][s];
          pairs.x = bits_of(__hmul2(pair_of(pairs.x), factor));
          pairs.y = bits_of(__hmul2(pair_of(pairs.y), factor));
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_chunk(const uint4& words, const Fragments& b,
                                                 float (&d)[4]) const {
    uint32_t w[kColumns / 16][4];
    dequantize_unscaled<kFormat>(words, {}, w);
#pragma unroll
    for (int s = 0; s < kColumns / 16; ++s) ptx::mma_bf16(d, w[s], b[s].x, b[s].y);
  }
  __device__ __forceinline__ void multiply(const uint8_t* first, float (&d)[4]) const {
    for_each_chunk<kChunks, kTogether, kChunkBytes>(
        first, count, lane,
        [&](const uint4& words, const uint8_t*, int j) { multiply_chunk(words, tokens[j], d); });
  }

  __device__ __forceinline__ ExpertItem wait_issued(unsigned n) const {
    while (*const_cast<const volatile unsigned*>(&shared.issued) <= n) {
    }
    asm volatile("" ::: "memory");
    const int4 words = *reinterpret_cast<const int4*>(&shared.items[n % kItemRing]);
    return {words.x, words.y, words.z, words.w};
  }
  // All lanes have written this warp's sums of a buffer.
  __device__ __forceinline__ void publish(int buffer, int key, int block) const {
    if (warp == 0 && lane == 0) shared.finished[warp_group][buffer] = {key, block};
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.sums_full[warp_group][buffer]);
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (unsigned n = 0;; ++n) {
      const ExpertItem item = wait_issued(n);
      if (item.key < 0) {
        const int state = warp_group ? item.block : item.buffer;
        ptx::mbarrier_wait(&shared.sums_empty[warp_group][state >> 1], state & 1 ^ 1);
        return publish(state >> 1, -1, 0);
      }
      if ((item.flags & ExpertItem::kWarpGroup) != warp_group) continue;
      if (item.key != held) hold_tokens(item.key);
      const int buffer = item.buffer >> 1;
      float4* sums = &shared.sums[warp_group][buffer][warp][lane];
      const unsigned stage = n % Shared::kSlots;
      float d[4] = {};
      if (item.flags & ExpertItem::kFirst) {
        ptx::mbarrier_wait(&shared.sums_empty[warp_group][buffer], item.buffer & 1 ^ 1);
      } else {
        *reinterpret_cast<float4*>(d) = *sums;
      }
      ptx::mbarrier_wait(&shared.full[stage], n / Shared::kSlots & 1);
      const uint8_t* weights = shared.ring[stage];
      if (part == 0 && item.flags & ExpertItem::kFirst && lane < kBlockRows) {
        shared.row_scale[warp_group][buffer][group][lane] = reinterpret_cast<const float*>(
            weights + Shared::kWeightBytes)[group * kBlockRows + lane];
      }
      multiply(weights + offset, d);
      __syncwarp();  // all lanes have read the slot
      if (lane == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
      *sums = {d[0], d[1], d[2], d[3]};
      if (item.flags & ExpertItem::kLast) publish(buffer, item.key, item.block);
    }
  }
};

template <WeightFormat kFormat>
struct ExpertEpilogue {
  using Shared = ExpertShared<kFormat>;
  const ExpertMlpLaunch& launch;
  Shared& shared;
  const int lane, warp_group;

  __device__ __forceinline__ void run() const {
    PipelineState state;
#pragma unroll 1
    for (;; state.advance(kSumBuffers)) {
      ptx::mbarrier_wait(&shared.sums_full[warp_group][state.stage], state.phase);
      __syncwarp();
      const int2 item = shared.finished[warp_group][state.stage];
      if (item.x < 0) return;
      const int down = item.x & 1, tile = item.x >> 9;
      const ExpertGemm& gemm = launch.gemm[down];
      const int blocks = min(kGroupWarps / gemm.split, gemm.tiles.blocks - item.y);
#pragma unroll 1
      for (int i = 0; i < blocks; ++i) finish(down, tile, item.y + i, state.stage, i, gemm.split);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.sums_empty[warp_group][state.stage]);
    }
  }

  // Adds the parts of K of a row block, in order. `group`: of the row blocks of its item.
  __device__ __forceinline__ void finish(int down, int tile, int block, int buffer, int group,
                                         int split) const {
    const float4* sums = &shared.sums[warp_group][buffer][group * split][lane];
    float d[4] = {};
#pragma unroll
    for (int p = 0; p < kGroupWarps; ++p) {
      if (p >= split) break;
      const float4 v = sums[p * 32];
      d[0] += v.x, d[1] += v.y, d[2] += v.z, d[3] += v.w;
    }
    constexpr float kBack = kFormat == WeightFormat::fp8 ? 0x1p60f : 1;
    const float* scales = shared.row_scale[warp_group][buffer][group] + lane / 4;
    const float scale[2] = {scales[0] * kBack, scales[8] * kBack};
    const int first_slot = tile * kSkinnyTile;
    if (!down) {
      const Activation activation = launch.args.activation;
      uint32_t pair = pack_bf16(activate(activation, d[0] * scale[0]) * d[2] * scale[1],
                                activate(activation, d[1] * scale[0]) * d[3] * scale[1]);
      // Transposes rows x slots: a lane then has two adjacent rows of one slot.
      ptx::movmatrix_trans(pair);
      const int slot = first_slot + lane / 4;
      uint16_t* to = launch.activated + wide_at(block * 8 + lane % 4 * 2, slot, launch.capacity);
      if (shared.token_of[slot] >= 0) ptx::st_relaxed(reinterpret_cast<unsigned*>(to), pair);
      return;
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int slot = first_slot + lane % 4 * 2 + v % 2;
      const int row = block * kBlockRows + lane / 4 + v / 2 * 8;
      if (shared.token_of[slot] < 0 || row >= launch.args.stride) continue;
      launch.args.rows[size_t(slot) * launch.args.stride + row] = d[v] * scale[v / 2];
    }
  }
};

// Makes the activations of the launch before not ready, by the math warps. One store per 8 columns
// of a slot.
__device__ inline void reset_activated(const ExpertMlpLaunch& launch) {
  const int columns = launch.gemm[0].tiles.blocks * 8;
  const int row = launch.reset_tiles * 64, stride = launch.capacity / kSkinnyTile * 64;
  const int count = (columns + 63) / 64 * row;
  constexpr int kThreads = kExpertMathWarps * 32;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    const int k = i / row, piece = i - k * row;
    if (k * 64 + piece % 64 / 8 * 8 >= columns) continue;
    reinterpret_cast<uint4*>(launch.reset)[size_t(k) * stride + piece] = {kNotReady, kNotReady,
                                                                          kNotReady, kNotReady};
  }
}

// Copies the routing lists to shared memory; returns the number of tiles. All loads are in flight
// together, so they are bounded by the most tiles there can be, not by the number.
template <typename Shared>
__device__ __forceinline__ int load_lists(const ExpertMlpArgs& a, Shared& shared) {
  const int tiles = __ldcg(a.routing.tile_count), max_tiles = a.slots / kSkinnyTile;
  const int thread = threadIdx.x;
  if (thread < max_tiles) {
    const int expert = __ldcg(a.routing.tile_matrix + thread);
    int source[kSkinnyTile];
#pragma unroll
    for (int i = 0; i < kSkinnyTile; ++i) {
      source[i] = __ldcg(a.routing.source + i * max_tiles + thread);
    }
    shared.expert_of[thread] = expert;
#pragma unroll
    for (int i = 0; i < kSkinnyTile; ++i) shared.token_of[i * max_tiles + thread] = source[i];
  }
  __syncthreads();
  return tiles;
}

// The same from the router's logits.
template <typename Shared>
__device__ __forceinline__ int route(const ExpertMlpArgs& a, Shared& shared) {
  auto& scratch = *reinterpret_cast<RoutingScratch*>(shared.sums);
  auto* logits = reinterpret_cast<float*>(shared.ring);
  const int thread = threadIdx.x, warp = thread / 32;
  if (thread < kSlotThreads) {
    const auto sync = [] { ptx::bar_sync<3>(kSlotThreads); };
    ExpertRouting r = a.routing;
    const int count = r.tokens * r.experts;
#pragma unroll 4
    for (int i = thread; i < count; i += kSlotThreads) logits[i] = __ldcg(r.logits + i);
    sync();
    r.logits = logits, r.expert = scratch.expert, r.source = scratch.source;
    r.tile_matrix = scratch.tile_matrix, r.tile_count = &scratch.tile_count;
    if (blockIdx.x > 0) r.slot = scratch.slot, r.weight = scratch.weight;
    const auto load = [](const float* from) { return *from; };
#pragma unroll 1
    for (int t = warp; t < r.tokens; t += kSlotThreads / 32) {
      r.experts <= 128 ? select_top_k<4>(r, t, thread % 32, load)
                       : select_top_k<kMaxPerLane>(r, t, thread % 32, load);
    }
    sync();
    assign_slots(r, scratch.slots, sync);
    sync();
    const int tiles = scratch.tile_count;
    if (thread < tiles) shared.expert_of[thread] = scratch.tile_matrix[thread];
    for (int i = thread; i < tiles * kSkinnyTile; i += kSlotThreads) {
      shared.token_of[i] = scratch.source[i];
    }
    ptx::fence_proxy_async_shared();  // the ring's copies come after these accesses
  }
  __syncthreads();
  const int tiles = scratch.tile_count;
  __syncthreads();  // before the first sums
  return tiles;
}

#endif

template <WeightFormat kFormat>
__global__ void __launch_bounds__(kExpertThreads, 1)
    expert_mlp_kernel(const __grid_constant__ ExpertMlpLaunch launch) {
#ifdef RIDGE_HOPPER
  using Shared = ExpertShared<kFormat>;
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  if (thread < Shared::kSlots) {
    ptx::mbarrier_init(&shared.full[thread], 1);
    ptx::mbarrier_init(&shared.empty[thread], kGroupWarps);
    ptx::fence_proxy_async_shared();
  }
  if (thread < kExpertWarpGroups * kSumBuffers) {
    ptx::mbarrier_init(&shared.sums_full[0][thread], kGroupWarps);
    ptx::mbarrier_init(&shared.sums_empty[0][thread], 1);
  }
  if (thread == 0) shared.issued = 0;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int tiles =
      launch.args.routes ? route(launch.args, shared) : load_lists(launch.args, shared);
  if (warp == kExpertMathWarps) {
    if (lane == 0) ExpertProducer<kFormat>{launch, shared}.run({launch, tiles});
  } else if (warp > kExpertMathWarps) {
    ExpertEpilogue<kFormat>{launch, shared, lane, warp - kExpertMathWarps - 1}.run();
  } else {
    reset_activated(launch);
    ExpertMath<kFormat>{launch, shared, lane, warp / kGroupWarps, warp % kGroupWarps}.run();
  }
#endif
}

}  // namespace ridge::cuda
