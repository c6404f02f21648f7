// The kernel of skinny_gemm.cuh: y[rows x tokens] = W[rows x K] x[K x tokens] for up to 8 kGroups
// tokens, or for each tile of 8 slots of routed experts.
//
// Two blocks per SM, 8 warps each, no dedicated producer: every warp fills a ring of its own.
//   - A unit is a row block (16 rows) of a token tile. A thread block has a contiguous run of
//   units.
//   - It computes them in passes of consecutive units of one tile, kPassUnits per warp group. The
//     groups take the units of a pass in turn.
//   - The split_k warps of a group have a range of K each. The tokens of a range, or of a segment
//   of
//     it, stay in registers while the rows pass.
//   - When all warps have published their sums, one warp per unit adds the parts in order and runs
//     the epilogue.
//
//   SkinnyShared
//   +---------------------------------------------------------------------------------+
//   | ring[8 warps][kSlots]: kCopyChunks chunks | 16 row scales (fp8, int8)           |
//   | partials[2 passes][kPassUnits][8 warps][kGroups][32 lanes]: sums of the K parts |
//   | row_scale[2 passes][units of a pass][16]                                        |
//   | full[8 warps][kSlots]: mbarriers                                                |
//   | expert_of[tile], token_of[slot]: the routing lists                              |
//   +---------------------------------------------------------------------------------+
//
// Barriers: `full` counts the bytes of a copy; the warp that issued it waits for it. A slot needs
// no `empty` barrier: __syncwarp() precedes its next copy. One __syncthreads() per pass makes the
// sums visible; they alternate between two buffers, so no second one is needed.
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

// Chunks whose tokens fit `registers` of a lane.
__host__ __device__ constexpr int held_chunks(WeightFormat format, int groups, int registers) {
  const int held = registers / (format_info(format).columns / 8 * groups);
  return held < 2 * kCopyChunks ? held : 2 * kCopyChunks;
}

// kGroups: token groups of 8.
template <WeightFormat kFormat, int kGroups>
struct SkinnyShared {
  static constexpr int kSlots = 2;
  static constexpr int kPassUnits = 4 / kGroups;  // of a warp group
  // The first copy of a unit brings the scales of its rows: a load of their own would queue behind
  // all copies in flight.
  static constexpr int kScaleBytes = has_row_scale(kFormat) ? kBlockRows * 4 : 0;
  static constexpr int kCopyBytes = kCopyChunks * format_info(kFormat).chunk_bytes;
  uint8_t ring[kSkinnyWarps][kSlots][kCopyBytes + kScaleBytes];
  float4 partials[2][kPassUnits][kSkinnyWarps][kGroups][32];
  float row_scale[2][kPassUnits * kSkinnyWarps][kBlockRows];
  uint64_t full[kSkinnyWarps][kSlots];
  uint16_t expert_of[kSkinnyMaxTiles];
  int8_t token_of[kSkinnyMaxTiles * kSkinnyTile];
};

#ifdef RIDGE_HOPPER

// Where a pass begins.
struct SkinnyPosition {
  int unit, tile, block;  // unit: of all; block: of the tile
  __device__ __forceinline__ void advance(int units, int blocks) {
    unit += units, block += units;
    if (block == blocks) block = 0, ++tile;
  }
};

// What a warp computes: its warp group, its K range, the run of units of its thread block.
template <WeightFormat kFormat, int kGroups>
struct SkinnyWork {
  static constexpr int kColumns = format_info(kFormat).columns;
  static constexpr int kStepChunks = 64 / kColumns;  // K ranges are multiples of 64 columns
  const SkinnyGemmArgs& a;
  SkinnyShared<kFormat, kGroups>& shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group_shift = __ffs(kSkinnyWarps) - __ffs(a.split_k);  // log2 of the warp groups
  const int group = warp / a.split_k, part = warp % a.split_k;
  const int chunks = a.tiles.chunks, blocks = a.tiles.blocks;
  const int range =
      (chunks + a.split_k * kStepChunks - 1) / (a.split_k * kStepChunks) * kStepChunks;
  const int first_chunk = part * range, chunk_count = min(range, chunks - first_chunk);
  const bool grouped = a.tile_count != nullptr;
  int begin = 0, end = 0;  // units of this thread block

  // Copies the routing lists to shared memory; returns the number of token tiles. All loads are in
  // flight together: none waits for the count.
  __device__ __forceinline__ int load_lists() const {
    if (!grouped) return 1;
    static_assert(kSkinnyMaxTiles == kSkinnyThreads);
    const int tiles = __ldcg(a.tile_count);  // bypasses L1, which may hold an earlier layer's
    const int max_tiles = a.padded / kSkinnyTile, thread = threadIdx.x;
    int expert = 0, source[kSkinnyTile];
    if (thread < max_tiles) expert = __ldcg(a.tile_matrix + thread);
#pragma unroll
    for (int i = 0; i < kSkinnyTile; ++i) {
      if (i * max_tiles + thread < max_tiles * kSkinnyTile && thread < max_tiles) {
        source[i] = __ldcg(a.source + i * max_tiles + thread);
      }
    }
    if (thread < max_tiles) {
      shared.expert_of[thread] = expert;
#pragma unroll
      for (int i = 0; i < kSkinnyTile; ++i) shared.token_of[i * max_tiles + thread] = source[i];
    }
    __syncthreads();
    return tiles;
  }
  __device__ __forceinline__ SkinnyPosition set_run(int tiles) {
    begin = tiles * blocks * blockIdx.x / gridDim.x;
    end = tiles * blocks * (blockIdx.x + 1) / gridDim.x;
    return {begin, begin / blocks, begin % blocks};
  }
  // Units of the pass that begins at `at`; of these, units of this warp's group.
  __device__ __forceinline__ int pass_units(const SkinnyPosition& at) const {
    constexpr int kPassUnits = SkinnyShared<kFormat, kGroups>::kPassUnits;
    return min(min(kPassUnits << group_shift, end - at.unit), blocks - at.block);
  }
  __device__ __forceinline__ int group_units(int pass_units) const {
    return (pass_units - group + (1 << group_shift) - 1) >> group_shift;
  }
  __device__ __forceinline__ int matrix_of(int tile) const {
    return a.matrix + (grouped ? shared.expert_of[tile] : 0);
  }
  __device__ __forceinline__ bool used(int slot) const {
    return grouped ? shared.token_of[slot] >= 0 : slot < a.tokens;
  }
};

// The producer side of a warp: issues its copies in the order in which main_loop() reads them: by
// pass, segment of K, unit, chunk.
template <WeightFormat kFormat, int kGroups, int kHeld>
struct WeightLoader {
  using Shared = SkinnyShared<kFormat, kGroups>;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  const SkinnyWork<kFormat, kGroups>& work;
  SkinnyPosition next;        // where the next pass begins
  int units = 0, unit = 0;    // of this warp in the present pass, and the one being loaded
  int segment = 0, left = 0;  // first chunk of the segment; chunks of the unit still to load
  const uint8_t* from = nullptr;
  int scale_row = 0;  // of the unit's first row in Tiles::row_scale
  const uint64_t policy = ptx::createpolicy_evict_first();

  __device__ __forceinline__ int segment_chunks() const {
    return min(kHeld, work.chunk_count - segment);
  }
  // Bytes from one unit of this warp to the next.
  __device__ __forceinline__ int stride() const {
    return (work.chunks << work.group_shift) * kChunkBytes;
  }
  __device__ __forceinline__ void start_pass() {
    if (work.chunk_count <= 0) return;
    units = 0;
    while (units == 0) {  // a short pass may have no unit of this warp
      if (next.unit >= work.end) return;
      const int pass_units = work.pass_units(next);
      units = work.group_units(pass_units);
      const int matrix = work.matrix_of(next.tile), block = next.block + work.group;
      from = work.a.tiles.data + work.a.tiles.stride * matrix +
             (size_t(block) * work.chunks + work.first_chunk) * kChunkBytes;
      scale_row = (matrix * work.blocks + block) * kBlockRows;
      next.advance(pass_units, work.blocks);
    }
    unit = segment = 0, left = segment_chunks();
  }

  // Issues the next copy into `slot`, which all lanes have read.
  __device__ __forceinline__ void issue(int slot) {
    if (left <= 0) return;
    const int chunks = min(left, kCopyChunks), bytes = chunks * kChunkBytes;
    if (work.lane == 0) {
      const bool scaled =
          has_row_scale(kFormat) && work.part == 0 && segment == 0 && left == segment_chunks();
      uint8_t* to = work.shared.ring[work.warp][slot];
      uint64_t* full = &work.shared.full[work.warp][slot];
      ptx::mbarrier_arrive_expect_tx(full, bytes + (scaled ? Shared::kScaleBytes : 0));
      ptx::cp_async_bulk(to, from, bytes, full, policy);
      if (scaled)
        ptx::cp_async_bulk(to + Shared::kCopyBytes, work.a.tiles.row_scale + scale_row,
                           Shared::kScaleBytes, full, policy);
    }
    from += bytes, left -= chunks;
    if (left == 0) next_unit();
  }
  __device__ __forceinline__ void next_unit() {
    from += stride() - segment_chunks() * kChunkBytes;
    scale_row += kBlockRows << work.group_shift;
    if (++unit == units) {
      from -= units * stride() - segment_chunks() * kChunkBytes;
      segment += kHeld, unit = 0;
      if (segment >= work.chunk_count) return start_pass();
    }
    left = segment_chunks();
  }
};

// The math side of a warp. kHeld: chunks of a segment, whose tokens a lane holds in registers.
template <WeightFormat kFormat, int kGroups, int kHeld>
struct SkinnyMath {
  using Shared = SkinnyShared<kFormat, kGroups>;
  using Work = SkinnyWork<kFormat, kGroups>;
  static constexpr int kColumns = Work::kColumns, kStepChunks = Work::kStepChunks;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  using Fragments = uint2[kColumns / 16][kGroups];  // B of a chunk
  using Sums = float[kGroups][4];

  const Work& work;
  WeightLoader<kFormat, kGroups, kHeld>& loader;
  Fragments (&tokens)[kHeld];
  PipelineState state = {};
  int held_tile = -1, held_segment = 0;  // whose tokens are in registers, or on their way
  bool raw = false;                      // they are not scaled yet

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

  __device__ __forceinline__ void load_tokens(int tile, int segment) {
    if (tile == held_tile && segment == held_segment) return;
    held_tile = tile, held_segment = segment, raw = true;
    const int stride = work.a.x_padded * 64;  // elements from 64 columns to the next 64
    const int count = work.chunk_count - segment;
    const uint16_t* x = tokens_of(tile) + segment / kStepChunks * stride;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const uint16_t* at = x + j / kStepChunks * stride + j % kStepChunks * kColumns * 8;
#pragma unroll
      for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const uint16_t* pair = at + s * 128 + g * 512;
          if (j < count) {
            tokens[j][s][g] = {*reinterpret_cast<const uint32_t*>(pair),
                               *reinterpret_cast<const uint32_t*>(pair + 64)};
          }
        }
      }
    }
  }
  // fp8: times 2^60, as dequantize_unscaled() wants it; row scales too.
  __device__ __forceinline__ void scale_tokens() {
    if (kFormat != WeightFormat::fp8 || !raw) return;
    raw = false;
    const __nv_bfloat162 factor = pair_of(0x5d805d80u);
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
#pragma unroll
      for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          uint2& pairs = tokens[j][s][g];
          pairs.x = bits_of(__hmul2(pair_of(pairs.x), factor));
          pairs.y = bits_of(__hmul2(pair_of(pairs.y), factor));
        }
      }
    }
  }

  __device__ __forceinline__ uint4 load_words(const uint8_t* chunk) const {
    return *reinterpret_cast<const uint4*>(chunk + work.lane * 16);
  }
  __device__ __forceinline__ void multiply_chunk(const uint4& words, const uint8_t* chunk,
                                                 const Fragments& b, Sums& d) const {
    __half2 scales = {};
    if (has_group_scale(kFormat)) {
      scales = *reinterpret_cast<const __half2*>(chunk + 512 + work.lane / 4 * 4);
    }
    uint32_t w[kColumns / 16][4];
    dequantize_unscaled<kFormat>(words, scales, w);
#pragma unroll
    for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) ptx::mma_bf16(d[g], w[s], b[s][g].x, b[s][g].y);
    }
  }

  // Multiplies up to kCopyChunks of the `count` chunks that remain of a segment, whose tokens are
  // tokens[kFirst], tokens[kFirst + 1], ...
  template <int kFirst>
  __device__ __forceinline__ void multiply_copy(int count, Sums& d) {
    constexpr int kChunks = kHeld - kFirst < kCopyChunks ? kHeld - kFirst : kCopyChunks;
    constexpr int kTogether = kChunks < 4 ? kChunks : 4;
    ptx::mbarrier_wait(&work.shared.full[work.warp][state.stage], state.phase);
    const uint8_t* slot = work.shared.ring[work.warp][state.stage];
#pragma unroll
    for (int from = 0; from < kChunks; from += kTogether) {
      const uint8_t* chunk = slot + from * kChunkBytes;
      if (count >= from + kTogether) {
        uint4 words[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) words[j] = load_words(chunk + j * kChunkBytes);
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          multiply_chunk(words[j], chunk + j * kChunkBytes, tokens[kFirst + from + j], d);
        }
      } else {
#pragma unroll
        for (int j = 0; j < kTogether - 1; ++j) {
          if (from + j >= count) break;
          multiply_chunk(load_words(chunk + j * kChunkBytes), chunk + j * kChunkBytes,
                         tokens[kFirst + from + j], d);
        }
      }
    }
    __syncwarp();  // all lanes have read the slot
    loader.issue(state.stage);
    state.advance(Shared::kSlots);
  }

  // The sums over this warp's K range of a pass that begins at `tile`, into partials[buffer].
  __device__ __forceinline__ void main_loop(int tile, int units, int buffer) {
#pragma unroll 1
    for (int segment = 0; segment == 0 || segment < work.chunk_count; segment += kHeld) {
      const int count = min(kHeld, work.chunk_count - segment);  // not positive: nothing to add
      load_tokens(tile, segment);
      scale_tokens();
#pragma unroll 1
      for (int i = 0; i < units; ++i) {
        float4* partial = work.shared.partials[buffer][i][work.warp][0] + work.lane;
        Sums d = {};
        if (segment > 0) {
#pragma unroll
          for (int g = 0; g < kGroups; ++g) {
            *reinterpret_cast<float4*>(d[g]) = partial[g * 32];
          }
        } else if (has_row_scale(kFormat) && work.part == 0) {
          copy_scales(work.shared.row_scale[buffer][(i << work.group_shift) + work.group]);
        }
        if (count > 0) multiply_copy<0>(count, d);
        if constexpr (kHeld > kCopyChunks) {
          if (count > kCopyChunks) multiply_copy<kCopyChunks>(count - kCopyChunks, d);
        }
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          partial[g * 32] = {d[g][0], d[g][1], d[g][2], d[g][3]};
        }
      }
    }
  }
  __device__ __forceinline__ void copy_scales(float* to) const {
    ptx::mbarrier_wait(&work.shared.full[work.warp][state.stage], state.phase);
    const uint8_t* slot = work.shared.ring[work.warp][state.stage];
    if (work.lane < kBlockRows) {
      to[work.lane] = reinterpret_cast<const float*>(slot + Shared::kCopyBytes)[work.lane];
    }
  }

  // Adds the parts of unit `unit` of a pass, in order, and finishes it.
  __device__ __forceinline__ void finish_unit(int tile, int first_block, int unit,
                                              int buffer) const {
    const int group = unit & (1 << work.group_shift) - 1;
    const float4* partial =
        work.shared.partials[buffer][unit >> work.group_shift][group * work.a.split_k][0] +
        work.lane;
    Sums d = {};
#pragma unroll
    for (int p = 0; p < kSkinnyWarps; ++p) {
      if (p >= work.a.split_k) break;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float4 v = partial[(p * kGroups + g) * 32];
        d[g][0] += v.x, d[g][1] += v.y, d[g][2] += v.z, d[g][3] += v.w;
      }
    }
    float scale[2] = {1, 1};
    if (has_row_scale(kFormat)) {
      constexpr float kBack = kFormat == WeightFormat::fp8 ? 0x1p60f : 1;
      const float* scales = work.shared.row_scale[buffer][unit] + work.lane / 4;
      scale[0] = scales[0] * kBack, scale[1] = scales[8] * kBack;
    }
    epilogue(tile, first_block + unit, d, scale);
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

template <WeightFormat kFormat, int kGroups, int kHeld>
__global__ void __launch_bounds__(kSkinnyThreads, kSkinnyBlocksPerSm)
    skinny_gemm_kernel(const __grid_constant__ SkinnyGemmArgs a) {
#ifdef RIDGE_HOPPER
  using Shared = SkinnyShared<kFormat, kGroups>;
  using Math = SkinnyMath<kFormat, kGroups, kHeld>;
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
  SkinnyPosition at = work.set_run(work.load_lists());
  WeightLoader<kFormat, kGroups, kHeld> loader{work, at};
  typename Math::Fragments tokens[kHeld];
  Math math{work, loader, tokens};
  const bool any = work.begin < work.end;
  if (a.gathers && any) math.load_tokens(at.tile, 0);  // before the copies, which would delay it
  loader.start_pass();
  for (int slot = 0; slot < Shared::kSlots; ++slot) loader.issue(slot);
  ptx::griddepcontrol_wait();

  for (int buffer = 0; at.unit < work.end; buffer ^= 1) {
    const int units = work.pass_units(at), tile = at.tile, block = at.block;
    math.main_loop(tile, work.group_units(units), buffer);
    at.advance(units, work.blocks);
    if (at.unit < work.end) math.load_tokens(at.tile, 0);  // in flight while this pass is finished
    __syncthreads();  // one per pass: every warp has read the sums of the pass before
    for (int unit = (work.warp + buffer * 4) % kSkinnyWarps; unit < units; unit += kSkinnyWarps) {
      math.finish_unit(tile, block, unit, buffer);
    }
  }
#endif
}

}  // namespace ridge::cuda
