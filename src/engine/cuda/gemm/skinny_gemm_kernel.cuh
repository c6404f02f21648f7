// The kernel of skinny_gemm.cuh: y[rows x tokens] = W[rows x K] x[K x tokens] for up to 8 kGroups
// tokens, or for each tile of 8 slots of routed experts.
//
// Two thread blocks per SM, 8 warps each, no dedicated producer: every warp fills a ring of its own
// (skinny_gemm_producer.cuh).
//   - A unit is one row block (16 rows) of one token tile. A thread block has a contiguous run of
//     units and computes them in passes: consecutive units of one tile, kPassUnits per warp group.
//   - A warp group has split_k warps, each with a range of K. The tokens of a range stay in
//     registers while the units pass. A longer range is cut into segments of kHeld chunks: a warp
//     computes one segment of all its units in a pass, then the next.
//   - When all warps have published the sums of a pass, one warp per unit adds the K parts in order
//     and runs the epilogue.
//
//   SkinnyShared
//   +--------------------------------------------------------------------------+
//   | ring[8 warps][kSlots]: kCopyChunks chunks | 16 row scales (fp8, int8)    |
//   | partials[2][kPassUnits][8 warps][kGroups][32 lanes]: sums of the K parts |
//   | row_scale[2][units of a pass][16]                                        |
//   | full[8 warps][kSlots]: mbarriers                                         |
//   | expert_of[tile], token_of[slot]: the routing lists                       |
//   +--------------------------------------------------------------------------+
//
// Barriers: `full` counts the bytes of a copy; the warp that issued it waits for it. A slot needs
// no `empty` barrier: __syncwarp() precedes its next copy. One __syncthreads() per pass makes the
// sums visible; they alternate between two buffers, so no second one is needed. With
// mbarriers instead, so that a warp may run ahead of the others, the GEMMs took up to 5 % longer.
//
// Copies of weights are issued before the previous kernel has ended. Of dense GEMMs nothing else is
// read before that; of experts the routing lists, if they are old enough (SkinnyGemmArgs::gathers).
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/gemm/packed_chunks.cuh"
#include "engine/cuda/gemm/skinny_gemm_producer.cuh"
#include "engine/cuda/layout/dequantize.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

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
  int held = -1;     // tile << 16 | segment: whose tokens are in registers, or on their way
  bool raw = false;  // scale_tokens() is still to be called

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
    if (held == (tile << 16 | segment)) return;
    held = tile << 16 | segment, raw = true;
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
  // fp8: times 2^60, as dequantize_unscaled() wants it; row scales too. Not part of load_tokens(),
  // which would wait for the loads.
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

  // Multiplies the next copy: up to kCopyChunks of the `count` chunks that remain of a segment.
  // Their tokens are tokens[kFirst], tokens[kFirst + 1], ...
  template <int kFirst>
  __device__ __forceinline__ void multiply_copy(int count, Sums& d) {
    constexpr int kChunks = kHeld - kFirst < kCopyChunks ? kHeld - kFirst : kCopyChunks;
    constexpr int kTogether = kChunks < 4 ? kChunks : 4;  // loaded from shared memory together
    ptx::mbarrier_wait(&work.shared.full[work.warp][state.stage], state.phase);
    const uint8_t* slot = work.shared.ring[work.warp][state.stage];
    for_each_chunk<kChunks, kTogether, kChunkBytes>(
        slot, count, work.lane, [&](const uint4& words, const uint8_t* chunk, int j) {
          multiply_chunk(words, chunk, tokens[kFirst + j], d);
        });
    __syncwarp();  // all lanes have read the slot
    loader.issue(state.stage);
    state.advance(Shared::kSlots);
  }

  // Row scales of the unit whose first copy comes next.
  __device__ __forceinline__ void copy_scales(float* to) const {
    ptx::mbarrier_wait(&work.shared.full[work.warp][state.stage], state.phase);
    const uint8_t* slot = work.shared.ring[work.warp][state.stage];
    if (work.lane < kBlockRows) {
      to[work.lane] = reinterpret_cast<const float*>(slot + Shared::kCopyBytes)[work.lane];
    }
  }

  // The sums of a pass over this warp's K range, into partials[buffer]. The sums of a unit run
  // through all segments, so the bits do not depend on kHeld.
  __device__ __forceinline__ void main_loop(int tile, int units, int buffer) {
#pragma unroll 1
    for (int segment = 0; segment == 0 || segment < work.chunk_count; segment += kHeld) {
      const int count = min(kHeld, work.chunk_count - segment);  // not positive: the sums are zero
      load_tokens(tile, segment);
      scale_tokens();
#pragma unroll 1
      for (int i = 0; i < units; ++i) {
        float4* partial = work.shared.partials[buffer][i][work.warp][0] + work.lane;
        Sums d = {};
        if (segment > 0) {
#pragma unroll
          for (int g = 0; g < kGroups; ++g) *reinterpret_cast<float4*>(d[g]) = partial[g * 32];
        } else if (has_row_scale(kFormat) && work.part == 0) {
          copy_scales(work.shared.row_scale[buffer][(i << work.group_shift) + work.group]);
        }
        if (count > 0) multiply_copy<0>(count, d);
        if constexpr (kHeld > kCopyChunks) {
          if (count > kCopyChunks) multiply_copy<kCopyChunks>(count - kCopyChunks, d);
        }
#pragma unroll
        for (int g = 0; g < kGroups; ++g) partial[g * 32] = {d[g][0], d[g][1], d[g][2], d[g][3]};
      }
    }
  }

  // Adds the K parts of a unit, in order. `unit`: of the pass.
  __device__ __forceinline__ void finish_unit(int tile, int first_block, int unit,
                                              int buffer) const {
    const int group = unit & ((1 << work.group_shift) - 1), index = unit >> work.group_shift;
    const float4* partial =
        work.shared.partials[buffer][index][group * work.a.split_k][0] + work.lane;
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
    float bias[2] = {0, 0};  // of the lane's two rows
    if (a.bias) {
      const float* from = a.bias + (work.grouped ? work.shared.expert_of[tile] * a.bias_stride : 0);
      if (first_row < a.row_count) bias[0] = from[first_row];
      if (first_row + 8 < a.row_count) bias[1] = from[first_row + 8];
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int first_slot = work.grouped ? tile * kSkinnyTile : g * 8;
      if (a.epilogue == Epilogue::gate) {
        const auto gated = [&](float gate, float up) {
          if (a.bias) {
            return gate_times_up(a.activation, gate * scale[0] + bias[0], up * scale[1] + bias[1]);
          }
          return activate(a.activation, gate * scale[0]) * up * scale[1];  // as the expert MLPs do
        };
        uint32_t pair = pack_bf16(gated(d[g][0], d[g][2]), gated(d[g][1], d[g][3]));
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
        float y = d[g][v] * scale[v / 2] + bias[v / 2];
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
  // Before the copies, behind which the loads would queue.
  if (a.gathers && at.unit < work.end) math.load_tokens(at.tile, 0);
  loader.start_pass();
  for (int slot = 0; slot < Shared::kSlots; ++slot) loader.issue(slot);
  ptx::griddepcontrol_wait();

  for (int buffer = 0; at.unit < work.end; buffer ^= 1) {
    const int units = work.pass_units(at), tile = at.tile, block = at.block;
    math.main_loop(tile, work.group_units(units), buffer);
    at.advance(units, work.blocks);
    if (at.unit < work.end) math.load_tokens(at.tile, 0);  // in flight while this pass is finished
    __syncthreads();  // one per pass: every warp has read the sums of the pass before
    // Warps 0, 1, ... finish the units of one pass, warps 4, 5, ... those of the next.
    for (int unit = (work.warp + buffer * 4) % kSkinnyWarps; unit < units; unit += kSkinnyWarps) {
      math.finish_unit(tile, block, unit, buffer);
    }
  }
#endif
}

}  // namespace ridge::cuda
