// The kernel of skinny_gemm.cuh: y[rows x tokens] = W[rows x K] x[K x tokens] for up to 8 kGroups
// tokens, or for each tile of 8 slots of routed experts.
//
// Two blocks per SM, 8 warps each, no dedicated producer: every warp fills a ring of its own.
//   - The warps of a block form warp groups of split_k warps. A group computes one unit at a time:
//     16 rows of one token tile. Warp `part` of the group has the part-th range of K.
//   - A block has a contiguous run of units; its groups take them round by round.
//   - Part 0 adds the other parts' sums and runs the epilogue.
//
//   SkinnyShared
//   +-------------------------------------------------------------------------+
//   | ring[8 warps][kSlots]: kCopyChunks chunks | 16 row scales (fp8, int8)   |
//   | partials[2 rounds][7 warps][kGroups][32 lanes]: sums of parts 1, 2, ... |
//   | full[8 warps][kSlots]: mbarriers                                        |
//   | expert_of[tile], token_of[slot]: the routing lists                      |
//   +-------------------------------------------------------------------------+
//
// Barriers: `full` counts the bytes of a copy; the warp that issued it waits for it. A slot needs
// no `empty` barrier: __syncwarp() precedes its next copy. One __syncthreads() per round makes the
// partial sums visible; they alternate between two buffers, so no second one is needed.
//
// Copies of weights are issued before the previous kernel has ended. Of dense GEMMs nothing else is
// read before that; of experts the routing lists, if they are old enough (SkinnyGemmArgs::gathers).
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/elementwise/scalar.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/ptx/pipeline.cuh"

namespace ridge::cuda {

constexpr int kSkinnyWarps = 8, kSkinnyThreads = kSkinnyWarps * 32;
constexpr int kCopyChunks = 8;  // chunks of one bulk copy
constexpr int kSkinnyBlocksPerSm = 2;

// Chunks whose tokens a lane holds in registers. Where a K range has no more, the tokens of a tile
// are loaded once for all its blocks of rows.
__host__ __device__ constexpr int held_chunks(WeightFormat format, int groups) {
  const int held = (groups > 1 ? 32 : 64) / (format_info(format).columns / 8 * groups);
  return held < 16 ? held : 16;
}

// fp8: times 2^60, as dequantize_unscaled() wants it; row scales too.
template <WeightFormat kFormat>
__device__ inline uint32_t load_pair(const uint16_t* x) {
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(x);
  if (kFormat != WeightFormat::fp8) return pair;
  return bits_of(__hmul2(pair_of(pair), pair_of(0x5d805d80u)));  // 2^60
}

// kGroups: token groups of 8.
template <WeightFormat kFormat, int kGroups>
struct SkinnyShared {
  static constexpr int kSlots = kGroups > 1 ? 2 : 3;  // what fits twice on an SM
  // The first copy of a unit brings the scales of its rows: a load of their own would queue behind
  // all copies in flight.
  static constexpr int kScaleBytes = has_row_scale(kFormat) ? kBlockRows * 4 : 0;
  static constexpr int kChunkBytes = kCopyChunks * format_info(kFormat).chunk_bytes;
  uint8_t ring[kSkinnyWarps][kSlots][kChunkBytes + kScaleBytes];
  float4 partials[2][kSkinnyWarps - 1][kGroups][32];
  uint64_t full[kSkinnyWarps][kSlots];
  uint16_t expert_of[kSkinnyMaxTiles];
  int8_t token_of[kSkinnyMaxTiles * kSkinnyTile];
};

#ifdef RIDGE_HOPPER

// 16 rows of a token tile.
struct SkinnyUnit {
  int tile, block;
  __device__ void advance(int by, int blocks) {
    for (block += by; block >= blocks; block -= blocks) ++tile;
  }
};

// What a warp computes: its warp group, its K range, the run of units of its block.
template <WeightFormat kFormat, int kGroups>
struct SkinnyWork {
  static constexpr int kColumns = format_info(kFormat).columns;
  static constexpr int kStepChunks = 64 / kColumns;  // K ranges are multiples of 64 columns
  const SkinnyGemmArgs& a;
  SkinnyShared<kFormat, kGroups>& shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_groups = kSkinnyWarps / a.split_k, group = warp / a.split_k,
            part = warp % a.split_k;
  const int chunks = a.tiles.chunks, blocks = a.tiles.blocks;
  const int range =
      (chunks + a.split_k * kStepChunks - 1) / (a.split_k * kStepChunks) * kStepChunks;
  const int first_chunk = part * range, chunk_count = min(range, chunks - first_chunk);
  const bool grouped = a.tile_count != nullptr;
  int begin = 0, end = 0;  // units of this block

  // Copies the routing lists to shared memory; returns the number of token tiles.
  __device__ __forceinline__ int load_lists() const {
    int tiles = 1;
    if (!grouped) return tiles;
    tiles = __ldcg(a.tile_count);                  // bypasses L1, which may hold an earlier layer's
    const int max_tiles = a.padded / kSkinnyTile;  // an upper bound: does not wait for the count
    for (int i = threadIdx.x; i < max_tiles; i += kSkinnyThreads) {
      shared.expert_of[i] = __ldcg(a.tile_matrix + i);
    }
    for (int i = threadIdx.x; i < max_tiles * kSkinnyTile; i += kSkinnyThreads) {
      shared.token_of[i] = __ldcg(a.source + i);
    }
    __syncthreads();
    return tiles;
  }
  __device__ __forceinline__ void set_run(int tiles) {
    begin = tiles * blocks * blockIdx.x / gridDim.x;
    end = tiles * blocks * (blockIdx.x + 1) / gridDim.x;
  }
  __device__ __forceinline__ int matrix_of(int tile) const {
    return a.matrix + (grouped ? shared.expert_of[tile] : 0);
  }
  __device__ __forceinline__ bool used(int slot) const {
    return grouped ? shared.token_of[slot] >= 0 : slot < a.tokens;
  }
};

// The producer side of a warp: issues the copies of its units' chunks, in order.
template <WeightFormat kFormat, int kGroups>
struct WeightLoader {
  using Shared = SkinnyShared<kFormat, kGroups>;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  const SkinnyWork<kFormat, kGroups>& work;
  SkinnyUnit unit;      // the unit being loaded
  int ahead, left = 0;  // its distance from the block's first unit; chunks still to load
  const uint8_t *from = nullptr, *unit_data = nullptr;
  const float* unit_scales = nullptr;
  const size_t block_bytes = size_t(work.chunks) * kChunkBytes;
  const uint64_t policy = ptx::createpolicy_evict_first();

  __device__ __forceinline__ void start_unit() {
    if (work.begin + ahead >= work.end) return;
    const Tiles& tiles = work.a.tiles;
    const size_t matrix = work.matrix_of(unit.tile);
    unit_data = tiles.data + tiles.stride * matrix + unit.block * block_bytes +
                work.first_chunk * kChunkBytes;
    unit_scales = tiles.row_scale + (matrix * work.blocks + unit.block) * kBlockRows;
    from = unit_data, left = work.chunk_count;
  }

  // Issues the next copy into `slot`, which all lanes have read.
  __device__ __forceinline__ void issue(int slot) {
    if (left <= 0) return;
    const int bytes = min(left, kCopyChunks) * kChunkBytes;
    const bool scaled = has_row_scale(kFormat) && work.part == 0 && left == work.chunk_count;
    if (work.lane == 0) {
      uint8_t* to = work.shared.ring[work.warp][slot];
      uint64_t* full = &work.shared.full[work.warp][slot];
      ptx::mbarrier_arrive_expect_tx(full, bytes + (scaled ? Shared::kScaleBytes : 0));
      ptx::cp_async_bulk(to, from, bytes, full, policy);
      if (scaled)
        ptx::cp_async_bulk(to + Shared::kChunkBytes, unit_scales, Shared::kScaleBytes, full,
                           policy);
    }
    from += bytes, left -= kCopyChunks;
    if (left > 0) return;
    unit.block += work.warp_groups, ahead += work.warp_groups;
    if (unit.block < work.blocks && work.begin + ahead < work.end) {  // the same matrix
      unit_data += work.warp_groups * block_bytes, unit_scales += work.warp_groups * kBlockRows;
      from = unit_data, left = work.chunk_count;
    } else {
      unit.advance(0, work.blocks);
      start_unit();
    }
  }
};

// The math side of a warp.
template <WeightFormat kFormat, int kGroups>
struct SkinnyMath {
  using Shared = SkinnyShared<kFormat, kGroups>;
  using Work = SkinnyWork<kFormat, kGroups>;
  static constexpr int kColumns = Work::kColumns, kStepChunks = Work::kStepChunks;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  static constexpr int kHeld = held_chunks(kFormat, kGroups);
  // Chunks whose tokens are loaded together, and chunks of one iteration of the main loop.
  static constexpr int kTogether = kHeld < kCopyChunks ? kHeld : kCopyChunks;
  static constexpr int kIteration = kHeld < kCopyChunks ? kCopyChunks : kHeld;
  using Tokens = uint2[kHeld][kColumns / 16][kGroups];  // B fragments
  using Sums = float[kGroups][4];

  const Work& work;
  WeightLoader<kFormat, kGroups>& loader;
  PipelineState state = {};
  int held_tile = -1;  // the tile whose tokens are all in registers

  // Where this lane's column of the MMA begins in x, at the first chunk of the K range. A column
  // without a token reads another token's.
  __device__ __forceinline__ const uint16_t* tokens_of(int tile) const {
    const SkinnyGemmArgs& a = work.a;
    int column = kGroups > 1 ? work.lane / 4 : min(work.lane / 4, a.tokens - 1);
    if (work.grouped) {
      const int first = tile * kSkinnyTile;
      const int slot =
          first + (work.shared.token_of[first + work.lane / 4] < 0 ? 0 : work.lane / 4);
      column = a.gathers ? work.shared.token_of[slot] : slot;
    }
    return a.x + wide_at(work.first_chunk * kColumns, column, a.x_padded) + work.lane % 4 * 2;
  }

  // Tokens of chunks [from, from + kTogether) of this iteration; `left` chunks remain.
  __device__ __forceinline__ void load_tokens(Tokens& b, const uint16_t* x, int from,
                                              int left) const {
    const int stride = work.a.x_padded * 64;  // elements from 64 columns to the next 64
#pragma unroll
    for (int j = from; j < from + kTogether; ++j) {
      const uint16_t* at = x + j / kStepChunks * stride + j % kStepChunks * kColumns * 8;
#pragma unroll
      for (int s = 0; s < kColumns / 16 && j < left; ++s) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const uint16_t* pair = at + s * 128 + g * 512;
          b[j % kHeld][s][g] = {load_pair<kFormat>(pair), load_pair<kFormat>(pair + 64)};
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_chunk(const uint8_t* chunk,
                                                 const uint2 (&b)[kColumns / 16][kGroups],
                                                 Sums& d) const {
    __half2 scales = {};
    if (has_group_scale(kFormat)) {
      scales = *reinterpret_cast<const __half2*>(chunk + 512 + work.lane / 4 * 4);
    }
    uint32_t w[kColumns / 16][4];
    dequantize_unscaled<kFormat>(*reinterpret_cast<const uint4*>(chunk + work.lane * 16), scales,
                                 w);
#pragma unroll
    for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) ptx::mma_bf16(d[g], w[s], b[s][g].x, b[s][g].y);
    }
  }

  // d = the sums of a unit over this warp's K range; `scale`: of its rows (part 0).
  __device__ __forceinline__ void main_loop(int tile, bool in_run, Tokens& b, Sums& d,
                                            float (&scale)[2]) {
    const int stride = work.a.x_padded * 64;
    const bool load = tile != held_tile;
    const uint16_t* x = nullptr;
    if (load && in_run) x = tokens_of(tile);
#pragma unroll 1
    for (int left = in_run ? work.chunk_count : 0; left > 0; left -= kIteration) {
#pragma unroll
      for (int from = 0; from < kIteration; from += kTogether) {
        if (from >= left) break;
        if (load) load_tokens(b, x, from, left);
        const uint8_t* slot = work.shared.ring[work.warp][state.stage];
        if (from % kCopyChunks == 0) {
          ptx::mbarrier_wait(&work.shared.full[work.warp][state.stage], state.phase);
        }
        if (has_row_scale(kFormat) && work.part == 0 && from == 0 && left == work.chunk_count) {
          const float* scales = reinterpret_cast<const float*>(slot + Shared::kChunkBytes);
          constexpr float kBack = kFormat == WeightFormat::fp8 ? 0x1p60f : 1;
          scale[0] = scales[work.lane / 4] * kBack, scale[1] = scales[work.lane / 4 + 8] * kBack;
        }
#pragma unroll
        for (int j = from; j < from + kTogether; ++j) {
          if (j >= left) break;
          multiply_chunk(slot + j % kCopyChunks * kChunkBytes, b[j % kHeld], d);
        }
        if ((from + kTogether) % kCopyChunks == 0 || from + kTogether >= left) {
          __syncwarp();  // all lanes have read the slot
          loader.issue(state.stage);
          state.advance(work.a.slots);
        }
      }
      x += kIteration / kStepChunks * stride;
    }
    if (work.chunk_count <= kHeld) held_tile = tile;
  }

  // Parts 1, 2, ... of a warp group: publish their sums for part 0.
  __device__ __forceinline__ void publish_part(const Sums& d, int buffer) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      work.shared.partials[buffer][work.warp - 1][g][work.lane] = {d[g][0], d[g][1], d[g][2],
                                                                   d[g][3]};
    }
  }
  // Part 0: adds the sums of the other parts, in order.
  __device__ __forceinline__ void reduce_parts(Sums& d, int buffer) const {
#pragma unroll
    for (int p = 1; p < kSkinnyWarps; ++p) {
      if (p >= work.a.split_k) break;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float4 other = work.shared.partials[buffer][work.warp - 1 + p][g][work.lane];
        d[g][0] += other.x, d[g][1] += other.y, d[g][2] += other.z, d[g][3] += other.w;
      }
    }
  }

  __device__ __forceinline__ void epilogue(int tile, int block, const Sums& d,
                                           const float (&scale)[2]) const {
    const SkinnyGemmArgs& a = work.a;
    const int lane = work.lane, first_row = block * kBlockRows + lane / 4;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int first_slot = work.grouped ? tile * kSkinnyTile : g * 8;
      if (a.epilogue == Epilogue::gate) {
        uint32_t pair = pack_bf16(activate(a.activation, d[g][0] * scale[0]) * d[g][2] * scale[1],
                                  activate(a.activation, d[g][1] * scale[0]) * d[g][3] * scale[1]);
        // Transposes rows x tokens: a lane then has two adjacent rows of one token.
        ptx::movmatrix_trans(pair);
        uint16_t* to = a.out + wide_at(block * 8 + lane % 4 * 2, first_slot + lane / 4, a.padded);
        if (work.used(first_slot + lane / 4)) *reinterpret_cast<uint32_t*>(to) = pair;
        continue;
      }
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int slot = first_slot + lane % 4 * 2 + v % 2, row = first_row + v / 2 * 8;
        if (!work.used(slot) || row >= a.row_count) continue;
        float* to = a.rows + size_t(slot) * a.stride + row;
        float y = d[g][v] * scale[v / 2];
        if (a.bias) y += a.bias[row];
        if (a.epilogue == Epilogue::add) y += *to;
        if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
        *to = y;
      }
    }
  }
};

#endif

template <WeightFormat kFormat, int kGroups>
__global__ void __launch_bounds__(kSkinnyThreads, kSkinnyBlocksPerSm)
    skinny_gemm_kernel(const __grid_constant__ SkinnyGemmArgs a) {
#ifdef RIDGE_HOPPER
  using Shared = SkinnyShared<kFormat, kGroups>;
  using Math = SkinnyMath<kFormat, kGroups>;
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  SkinnyWork<kFormat, kGroups> work{a, shared};
  if (work.lane == 0) {
    for (uint64_t& barrier : shared.full[work.warp]) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async_shared();
  }
  __syncwarp();

  if (a.gathers) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();  // from here on the lists are old
  work.set_run(work.load_lists());
  SkinnyUnit unit = {work.begin / work.blocks, work.begin % work.blocks};
  unit.advance(work.group, work.blocks);
  WeightLoader<kFormat, kGroups> loader{work, unit, work.group};
  loader.start_unit();
  for (int slot = 0; slot < a.slots; ++slot) loader.issue(slot);
  ptx::griddepcontrol_wait();

  Math math{work, loader};
  typename Math::Tokens b;
  int buffer = 0;
  for (int base = work.begin; base < work.end; base += work.warp_groups, buffer ^= 1) {
    const auto [tile, block] = unit;
    const bool in_run = base + work.group < work.end;
    unit.advance(work.warp_groups, work.blocks);
    typename Math::Sums d = {};
    float scale[2] = {1, 1};
    math.main_loop(tile, in_run, b, d, scale);
    if (a.split_k > 1) {
      if (work.part > 0) math.publish_part(d, buffer);
      __syncthreads();  // one per round: every warp has read the sums of the round before
      if (work.part > 0) continue;
      math.reduce_parts(d, buffer);
    }
    if (!in_run) continue;
    math.epilogue(tile, block, d, scale);
  }
#endif
}

}  // namespace ridge::cuda
