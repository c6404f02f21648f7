// The kernel of prefill_attention.cuh, FlashAttention with online softmax:
//   S[128 x kKeys] = Q K^T,  P = 2^(S - max),  O[128 x head_dim] = O * rescale + P V
// One persistent block per SM:
//   warps 0-7   math: two warpgroups, 64 rows each. S becomes P in the registers from which wgmma
//               takes its A operand
//   warp 8      KV producer: bulk copies of pages into the ring
//   warp 9      query producer
//   warps 10-11 idle; they complete the warpgroup for setmaxnreg
//
// Shared memory: prefill_attention_layout.cuh. Barriers:
//   full / empty [slot][keys, values]  KV producer -> math by transaction bytes; back by one
//                                      arrival per math warp
//   queries_full / queries_empty       query producer -> math; back by one arrival per math warp,
//                                      after the queries are in registers (head_dim 256: after the
//                                      last key tile)
//
// The wgmma of a tile's scores and of the previous tile's output are in flight together; the
// softmax of the tile runs while the output's is still in flight. The two warpgroups overlap
// without explicit ping-pong barriers (with them it was slower).
#pragma once

#include "base/ptx/mma.cuh"
#include "base/ptx/wgmma.cuh"
#include "engine/cuda/attention/prefill_attention_producer.cuh"
#include "engine/cuda/device/scalar.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

// A value that is equal in all lanes, in a form that the compiler knows to be: wgmma takes its
// descriptors from uniform registers.
__device__ inline int uniform(int value) { return __reduce_or_sync(0xffffffffu, value); }

// A predicated store. After a divergent branch the compiler would no longer know what is uniform.
__device__ inline void store_if(bool condition, void* to, uint32_t value) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.b32 [%1], %2;\n}" ::"r"(
                   int{condition}),
               "l"(to), "r"(value)
               : "memory");
}

// One math warp. Lane 4 g + t of warp w of its warpgroup has rows 16 w + g and 16 w + g + 8.
template <int kHeadDim>
struct PrefillMath {
  using Shape = PrefillShape<kHeadDim>;
  using Item = PrefillItem<kHeadDim>;
  static constexpr int kKeys = Shape::kKeys;
  // Queries as wgmma's A operand: in registers where they fit, which saves reads of shared memory.
  static constexpr bool kHoldsQueries = kHeadDim <= 128;
  using Queries = uint32_t[kHoldsQueries ? kHeadDim / 16 : 1][4];
  using Scores = float[kKeys / 2];
  using Weights = uint32_t[kKeys / 16][4];
  using Output = float[kHeadDim / 2];
  struct RowState {
    float max[2], sum[2];  // of the lane's two rows; sum: over this lane's keys
  };
  // Which key tiles of an item need a mask.
  struct MaskBounds {
    int position[2];  // of the lane's two rows
    // For the whole warpgroup: tiles below causal_begin need no causal mask, tiles from window_end
    // on need no window mask.
    int causal_begin, window_end;
  };

  const PrefillAttentionLaunch& launch;
  PrefillShared<kHeadDim>& shared;
  const int warpgroup, warp, lane;

  // The compiler must see that `state` is uniform (store_if), or each wgmma waits for two moves to
  // uniform registers.
  __device__ void run() const {
    const AttentionArgs& args = launch.args;
    const float factor = args.softcap > 0 ? kLog2e : args.scale * kLog2e;
    PipelineState state;       // of the keys; values are one tile behind
    PipelineState item_state;  // of the next item
    uint32_t queries_phase = 0;
    Scores s;
    Output o;
    Weights p;
    Queries q;
    const Item* item = &next_item(q, item_state, queries_phase);
    if (uniform(item->tile.rows) == 0) return;
    ptx::mbarrier_wait(&shared.full[state.stage][0], state.phase);
    ptx::wgmma_fence();
    multiply_keys(s, q, state.stage);
    ptx::wgmma_wait<0>();
    release(state.stage, 0);
#pragma unroll 1
    while (true) {  // the scores of the item's first tile are in s
      RowState rows = {{kMaskedScore, kMaskedScore}, {0, 0}};
      attend_tiles(*item, q, factor, state, s, p, o, rows);
      // The last output, and with it the first scores of the next item.
      const Item& done = *item;
      item = &next_item(q, item_state, queries_phase);
      if (uniform(item->tile.rows) == 0) {
        ptx::mbarrier_wait(&shared.full[state.stage][1], state.phase);
        ptx::wgmma_fence();
        multiply_values(o, p, state.stage);
        ptx::wgmma_wait<0>();
        return write(done, o, rows);
      }
      const PipelineState previous = state;
      state.advance(Shape::kSlots);
      ptx::mbarrier_wait(&shared.full[state.stage][0], state.phase);
      ptx::wgmma_fence();
      multiply_keys(s, q, state.stage);
      ptx::mbarrier_wait(&shared.full[previous.stage][1], previous.phase);
      ptx::wgmma_fence();
      multiply_values(o, p, previous.stage);
      ptx::wgmma_wait<0>();
      release(state.stage, 0);
      release(previous.stage, 1);
      write(done, o, rows);
    }
  }

  // All key tiles of an item but for the last P V. In: the scores of the first tile in s. Out: the
  // weights of the last tile in p.
  __device__ __forceinline__ void attend_tiles(const Item& item, const Queries& q, float factor,
                                               PipelineState& state, Scores& s, Weights& p,
                                               Output& o, RowState& rows) const {
    const MaskBounds bounds = mask_bounds(item);
    const int tile_low = uniform(item.key_tile_low);
    float rescale[2];
    int tile = uniform(item.key_tile_high) - 1;
    const auto softmax = [&] {
      if (!kHoldsQueries && tile == tile_low) release(&shared.queries_empty);
      if (launch.args.softcap > 0) apply_softcap(s);
      if (tile >= bounds.causal_begin || tile < bounds.window_end) {
        apply_mask(s, tile * kKeys, bounds.position);
      }
      update_softmax(s, rows, rescale, factor);
    };
    softmax();
    pack(p, s);
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) o[i] = 0;
#pragma unroll 1
    for (--tile; tile >= tile_low; --tile) {
      const uint32_t previous_phase = state.phase;
      const int previous = state.stage;
      state.advance(Shape::kSlots);
      const int slot = state.stage;
      ptx::mbarrier_wait(&shared.full[slot][0], state.phase);
      ptx::wgmma_fence();
      multiply_keys(s, q, slot);
      ptx::mbarrier_wait(&shared.full[previous][1], previous_phase);
      ptx::wgmma_fence();
      multiply_values(o, p, previous);
      ptx::wgmma_wait<1>();
      release(slot, 0);
      softmax();
      ptx::wgmma_wait<0>();
      release(previous, 1);
      pack(p, s);
#pragma unroll
      for (int i = 0; i < kHeadDim / 2; ++i) o[i] *= rescale[i / 2 % 2];
    }
  }

  // Waits for the next item and its queries.
  __device__ const Item& next_item(Queries& q, PipelineState& state, uint32_t& phase) const {
    ptx::mbarrier_wait(&shared.queries_full, phase);
    phase ^= 1;
    const Item& item = shared.items[state.stage];
    state.advance(kPrefillItems);
    if constexpr (kHoldsQueries) {
      const uint32_t from = ptx::shared_address(shared.queries) +
                            (warpgroup * 64 + warp * 16 + lane / 8 % 2 * 8) * kHeadDim * 2 +
                            lane / 16 * 128 + lane % 8 * 16;
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        const uint4 a = ptx::ldmatrix_x4(from + k * 256);
        q[k][0] = a.x, q[k][1] = a.y, q[k][2] = a.z, q[k][3] = a.w;
      }
      release(&shared.queries_empty);
    }
    return item;
  }

  __device__ void multiply_keys(Scores& s, const Queries& q, int slot) const {
    const uint64_t k = ptx::wgmma_descriptor(shared.ring[slot][0], 128, kHeadDim * 16);
    const uint64_t queries =
        ptx::wgmma_descriptor(shared.queries + warpgroup * 64 * kHeadDim * 2, 128, kHeadDim * 16);
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      if constexpr (kHoldsQueries) {
        ptx::wgmma_bf16_rs<kKeys>(s, q[d / 16], ptx::wgmma_descriptor_at(k, d * 16), d > 0);
      } else {
        ptx::wgmma_bf16_ss<kKeys>(s, ptx::wgmma_descriptor_at(queries, d * 16),
                                  ptx::wgmma_descriptor_at(k, d * 16), d > 0);
      }
    }
    ptx::wgmma_commit();
  }
  __device__ void multiply_values(Output& o, const Weights& p, int slot) const {
    const uint64_t v = ptx::wgmma_descriptor(shared.ring[slot][1], kHeadDim * 16, 128);
#pragma unroll
    for (int page = 0; page < Shape::kPages; ++page) {
      ptx::wgmma_bf16_rs<kHeadDim>(o, p[page], ptx::wgmma_descriptor_at(v, page * kHeadDim * 32),
                                   true);
    }
    ptx::wgmma_commit();
  }
  // Keys (part 0) or values (part 1) of a slot, after wgmma has read them.
  __device__ void release(int slot, int part) const {
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[slot][part]);
  }
  __device__ void release(uint64_t* barrier) const {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }

  __device__ MaskBounds mask_bounds(const Item& item) const {
    const auto position = [&](int row) {
      return item.tile.past +
             launch.group.quotient(min(item.first + warpgroup * 64 + row, item.packed - 1));
    };
    const int oldest = position(63) + 1 - launch.args.window;
    return {{position(warp * 16 + lane / 4), position(warp * 16 + lane / 4 + 8)},
            (position(0) + 1) / kKeys,
            launch.args.window > 0 && oldest > 0 ? (oldest + kKeys - 1) / kKeys : 0};
  }
  // Masks the keys that the lane's rows do not attend to, in a tile that begins at `key`.
  __device__ void apply_mask(Scores& s, int key, const int (&position)[2]) const {
    const int window = launch.args.window;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int last = position[r] - key - lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (j * 8 + e > last) s[j * 4 + r * 2 + e] = kMaskedScore;
        }
      }
      if (window > 0) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (j * 8 + e <= last - window) s[j * 4 + r * 2 + e] = kMaskedScore;
          }
        }
      }
    }
  }

  // c tanh(s / c) as c - 2 c / (e^(2 s / c) + 1). Its error is about c 2^-22, and in an exponent
  // the absolute error counts.
  __device__ void apply_softcap(Scores& s) const {
    const float c = launch.args.softcap, in = 2 * kLog2e * launch.args.scale / c;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      s[i] = c - __fdividef(2 * c, fast_exp2(fminf(s[i] * in, 80.0f)) + 1);
    }
  }

  // Scores become weights 2^(factor (s - max)); `rescale`: what earlier weights and outputs are
  // multiplied with.
  __device__ void update_softmax(Scores& s, RowState& rows, float (&rescale)[2],
                                 float factor) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float maxima[2] = {rows.max[r], kMaskedScore};
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        maxima[j % 2] = fmaxf(maxima[j % 2], fmaxf(s[j * 4 + r * 2], s[j * 4 + r * 2 + 1]));
      }
      float max = fmaxf(maxima[0], maxima[1]);
      max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
      max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
      rescale[r] = fast_exp2((rows.max[r] - max) * factor);
      rows.max[r] = max;
      // All keys masked: the weights must be 0, and the rounding of max * factor must not show.
      const float base = max == kMaskedScore ? 0.0f : max * factor;
      float sum[2] = {rows.sum[r] * rescale[r], 0};
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[j * 4 + r * 2 + e];
          x = fast_exp2(__fmaf_rn(x, factor, -base));
          sum[e] += x;
        }
      }
      rows.sum[r] = sum[0] + sum[1];
    }
  }

  static __device__ void pack(Weights& p, const Scores& s) {
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) p[i / 4][i % 4] = pack_bf16(s[i * 2], s[i * 2 + 1]);
  }

  __device__ void write(const Item& item, Output& o, const RowState& rows) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = rows.sum[r];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int row = item.first + warpgroup * 64 + warp * 16 + lane / 4 + r * 8;
      const bool valid = row < item.packed;
      if (launch.args.sinks && valid) {
        const float factor = (launch.args.softcap > 0 ? 1 : launch.args.scale) * kLog2e;
        const float sink = launch.args.sinks[item.head(launch, row)] * kLog2e;
        sum += fast_exp2(fminf(sink - rows.max[r] * factor, 120.0f));
      }
      const float inverse = __fdividef(1.0f, sum);
      uint16_t* to = item.output(launch, row) + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        store_if(valid, to + wide_at(j * 8, 0, launch.args.out_tokens),
                 pack_bf16(o[j * 4 + r * 2] * inverse, o[j * 4 + r * 2 + 1] * inverse));
      }
    }
  }
};

#endif

template <int kHeadDim>
__global__ void __launch_bounds__(PrefillShape<kHeadDim>::kThreads, 1)
    prefill_attention_kernel(const __grid_constant__ PrefillAttentionLaunch launch) {
#ifdef RIDGE_HOPPER
  using Shape = PrefillShape<kHeadDim>;
  constexpr int kMathWarps = 4 * kMathWarpgroups;
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<PrefillShared<kHeadDim>*>(memory);
  static_assert(sizeof(shared) <= Shape::kSharedBytes);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Shape::kSlots; ++s) {
      for (int part = 0; part < 2; ++part) {
        ptx::mbarrier_init(&shared.full[s][part], 1);
        ptx::mbarrier_init(&shared.empty[s][part], kMathWarps);
      }
    }
    ptx::mbarrier_init(&shared.queries_full, 1);
    ptx::mbarrier_init(&shared.queries_empty, kMathWarps);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  if (warp < kMathWarps) {
    ptx::setmaxnreg_inc<Shape::kMathRegisters>();
    PrefillMath<kHeadDim>{launch, shared, warp / 4, warp % 4, lane}.run();
  } else {
    ptx::setmaxnreg_dec<Shape::kProducerRegisters>();
    if (warp == kMathWarps) {
      KvProducer<kHeadDim>(launch, shared, lane).run();
    } else if (warp == kMathWarps + 1) {
      produce_queries<kHeadDim>(launch, shared, lane);
    }
  }
#endif
}

}  // namespace ridge::cuda
