// Prompts' attention kernel (attention.cuh): one warp copies the cache's pages into a ring,
// warpgroups of 64 packed rows each take every tile of keys from it. Scores S = Q K^T, weights P =
// 2^(S - max), output O += P V; S becomes P in the registers where wgmma takes its A operand from.
//
// A tile's scores and the output of the one before it are multiplied together; its weights are made
// while the latter runs. Two warpgroups fill each other's gaps without being told to (taking turns
// by barriers was slower).
#pragma once

#include "base/ptx/mma.cuh"
#include "base/ptx/wgmma.cuh"
#include "engine/cuda/attention/attention_items.cuh"
#include "engine/cuda/layout/dequantize.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

// Equal in all lanes, and known to be: what depends on it stays in uniform registers, from which
// wgmma takes its descriptors.
__device__ inline int uniform(int value) { return __reduce_or_sync(0xffffffffu, value); }

// Without a branch that the lanes might take differently: behind one, the compiler does not know
// any more what is uniform.
__device__ inline void store_if(bool condition, void* to, uint32_t value) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.b32 [%1], %2;\n}" ::"r"(
                   int{condition}),
               "l"(to), "r"(value)
               : "memory");
}
// One warpgroup's state and steps. Lane 4 g + t of warp w has rows 16 w + g and 8 further.
template <int kHeadDim>
struct Attender {
  using Shape = AttentionShape<kHeadDim>;
  using Item = AttentionItem<kHeadDim>;
  static constexpr int kKeys = Shape::kKeys;
  // Queries as wgmma's A: in registers where these suffice, which spares shared memory.
  static constexpr bool kHeld = kHeadDim <= 128;
  using Queries = uint32_t[kHeld ? kHeadDim / 16 : 1][4];

  const AttentionLaunch& launch;
  AttentionShared<kHeadDim>& shared;
  const int warpgroup, warp, lane;

  // The next item, its queries ready.
  __device__ const Item& next(Queries& q, PipelineState& place, uint32_t& parity) const {
    ptx::mbarrier_wait(&shared.queries_full, parity);
    parity ^= 1;
    const Item& item = shared.items[place.stage];
    place.advance(kItems);
    if constexpr (kHeld) {
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

  __device__ void multiply_keys(float (&s)[kKeys / 2], const Queries& q, int slot) const {
    const uint64_t k = ptx::wgmma_descriptor(shared.ring[slot][0], 128, kHeadDim * 16);
    const uint64_t own =
        ptx::wgmma_descriptor(shared.queries + warpgroup * 64 * kHeadDim * 2, 128, kHeadDim * 16);
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      if constexpr (kHeld) {
        ptx::wgmma_bf16_rs<kKeys>(s, q[d / 16], ptx::wgmma_descriptor_at(k, d * 16), d > 0);
      } else {
        ptx::wgmma_bf16_ss<kKeys>(s, ptx::wgmma_descriptor_at(own, d * 16),
                                  ptx::wgmma_descriptor_at(k, d * 16), d > 0);
      }
    }
    ptx::wgmma_commit();
  }
  __device__ void multiply_values(float (&o)[kHeadDim / 2], const uint32_t (&p)[kKeys / 16][4],
                                  int slot) const {
    const uint64_t v = ptx::wgmma_descriptor(shared.ring[slot][1], kHeadDim * 16, 128);
#pragma unroll
    for (int page = 0; page < Shape::kPages; ++page) {
      ptx::wgmma_bf16_rs<kHeadDim>(o, p[page], ptx::wgmma_descriptor_at(v, page * kHeadDim * 32),
                                   true);
    }
    ptx::wgmma_commit();
  }
  // A part of the ring, after wgmma has read it.
  __device__ void release(int slot, int part) const {
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[slot][part]);
  }
  __device__ void release(uint64_t* barrier) const {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }

  // position: of the lane's two rows; masks what they do not see of a tile that begins at `key`.
  __device__ void mask(float (&s)[kKeys / 2], int key, const int (&position)[2]) const {
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

  // c tanh(s / c) as c - 2 c / (e^(2 s / c) + 1): right to within c 2^-22 or so, which is what
  // counts in an exponent.
  __device__ void cap(float (&s)[kKeys / 2]) const {
    const float c = launch.args.softcap, in = 2 * kLog2e * launch.args.scale / c;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      s[i] = c - __fdividef(2 * c, power_of_2(fminf(s[i] * in, 80.0f)) + 1);
    }
  }

  struct Rows {
    float most[2], sum[2];  // sum: of this lane's keys
  };
  // Scores become weights; `shrink`: what earlier weights are to be multiplied by.
  __device__ void weigh(float (&s)[kKeys / 2], Rows& rows, float (&shrink)[2], float factor) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most[2] = {rows.most[r], kMaskedScore};
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        most[j % 2] = fmaxf(most[j % 2], fmaxf(s[j * 4 + r * 2], s[j * 4 + r * 2 + 1]));
      }
      float now = fmaxf(most[0], most[1]);
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
      shrink[r] = power_of_2((rows.most[r] - now) * factor);
      rows.most[r] = now;
      // All masked: weights are to be 0, and the product's own rounding must not show.
      const float base = now == kMaskedScore ? 0.0f : now * factor;
      float sum[2] = {rows.sum[r] * shrink[r], 0};
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[j * 4 + r * 2 + e];
          x = power_of_2(__fmaf_rn(x, factor, -base));
          sum[e] += x;
        }
      }
      rows.sum[r] = sum[0] + sum[1];
    }
  }

  __device__ void write(const Item& item, float (&o)[kHeadDim / 2], const Rows& rows) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = rows.sum[r];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int row = item.first + warpgroup * 64 + warp * 16 + lane / 4 + r * 8;
      const bool there = row < item.packed;
      const float part = __fdividef(1.0f, sum);
      uint16_t* to = item.output(launch, row) + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        store_if(there, to + wide_at(j * 8, 0, launch.args.out_tokens),
                 pack_bf16(o[j * 4 + r * 2] * part, o[j * 4 + r * 2 + 1] * part));
      }
    }
  }

  // What this lane's rows see of an item.
  struct Sight {
    int position[2];
    // Tiles below `clear` need no mask for being later; those from `inside` on none for being too
    // long ago. Of the whole warpgroup.
    int clear, inside;
  };
  __device__ Sight sight(const Item& item) const {
    const auto position = [&](int row) {
      return item.work.past +
             launch.group.quotient(min(item.first + warpgroup * 64 + row, item.packed - 1));
    };
    const int oldest = position(63) + 1 - launch.args.window;
    return {{position(warp * 16 + lane / 4), position(warp * 16 + lane / 4 + 8)},
            (position(0) + 1) / kKeys,
            launch.args.window > 0 && oldest > 0 ? (oldest + kKeys - 1) / kKeys : 0};
  }

  // The compiler must see that `place` is uniform (store_if), or each wgmma waits for two moves
  // into uniform registers.
  __device__ void run() const {
    const AttentionArgs& args = launch.args;
    const float factor = args.softcap > 0 ? kLog2e : args.scale * kLog2e;
    PipelineState place;       // of the keys under way; values are one tile behind
    PipelineState item_place;  // of the next item
    uint32_t queries_parity = 0;
    float s[kKeys / 2], o[kHeadDim / 2];
    uint32_t p[kKeys / 16][4];
    Queries q;
    const Item* item = &next(q, item_place, queries_parity);
    if (uniform(item->work.rows) == 0) return;
    ptx::mbarrier_wait(&shared.full[place.stage][0], place.phase);
    ptx::wgmma_fence();
    multiply_keys(s, q, place.stage);
    ptx::wgmma_wait<0>();
    release(place.stage, 0);
#pragma unroll 1
    while (true) {  // the item's first scores are there
      const Sight seen = sight(*item);
      const int tile_low = uniform(item->tile_low);
      Rows rows = {{kMaskedScore, kMaskedScore}, {0, 0}};
      float shrink[2];
      int tile = uniform(item->tile_high) - 1;
      const auto weigh_scores = [&] {
        if (!kHeld && tile == tile_low) release(&shared.queries_empty);
        if (args.softcap > 0) cap(s);
        if (tile >= seen.clear || tile < seen.inside) mask(s, tile * kKeys, seen.position);
        weigh(s, rows, shrink, factor);
      };
      const auto pack = [&] {
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i) p[i / 4][i % 4] = pack_bf16(s[i * 2], s[i * 2 + 1]);
      };
      weigh_scores();
      pack();
#pragma unroll
      for (int i = 0; i < kHeadDim / 2; ++i) o[i] = 0;
#pragma unroll 1
      for (--tile; tile >= tile_low; --tile) {
        const uint32_t parity = place.phase;
        const int before = place.stage;
        place.advance(Shape::kSlots);
        const int slot = place.stage;
        ptx::mbarrier_wait(&shared.full[slot][0], place.phase);
        ptx::wgmma_fence();
        multiply_keys(s, q, slot);
        ptx::mbarrier_wait(&shared.full[before][1], parity);
        ptx::wgmma_fence();
        multiply_values(o, p, before);
        ptx::wgmma_wait<1>();
        release(slot, 0);
        weigh_scores();
        ptx::wgmma_wait<0>();
        release(before, 1);
        pack();
#pragma unroll
        for (int i = 0; i < kHeadDim / 2; ++i) o[i] *= shrink[i / 2 % 2];
      }
      // The last output, and with it the next item's first scores.
      const Item& done = *item;
      item = &next(q, item_place, queries_parity);
      if (uniform(item->work.rows) == 0) {
        ptx::mbarrier_wait(&shared.full[place.stage][1], place.phase);
        ptx::wgmma_fence();
        multiply_values(o, p, place.stage);
        ptx::wgmma_wait<0>();
        return write(done, o, rows);
      }
      const PipelineState before = place;
      place.advance(Shape::kSlots);
      ptx::mbarrier_wait(&shared.full[place.stage][0], place.phase);
      ptx::wgmma_fence();
      multiply_keys(s, q, place.stage);
      ptx::mbarrier_wait(&shared.full[before.stage][1], before.phase);
      ptx::wgmma_fence();
      multiply_values(o, p, before.stage);
      ptx::wgmma_wait<0>();
      release(place.stage, 0);
      release(before.stage, 1);
      write(done, o, rows);
    }
  }
};

#endif

template <int kHeadDim>
__global__ void __launch_bounds__(AttentionShape<kHeadDim>::kThreads, 1)
    attention(const __grid_constant__ AttentionLaunch launch) {
#ifdef RIDGE_HOPPER
  using Shape = AttentionShape<kHeadDim>;
  extern __shared__ __align__(128) uint8_t raw[];
  auto& shared = *reinterpret_cast<AttentionShared<kHeadDim>*>(raw);
  static_assert(sizeof(shared) <= Shape::kSharedBytes);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Shape::kSlots; ++s) {
      for (int part = 0; part < 2; ++part) {
        ptx::mbarrier_init(&shared.full[s][part], 1);
        ptx::mbarrier_init(&shared.empty[s][part], 4 * kGroups);
      }
    }
    ptx::mbarrier_init(&shared.queries_full, 1);
    ptx::mbarrier_init(&shared.queries_empty, 4 * kGroups);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  if (warp < 4 * kGroups) {
    ptx::setmaxnreg_inc<Shape::kGet>();
    Attender<kHeadDim>{launch, shared, warp / 4, warp % 4, lane}.run();
  } else {
    ptx::setmaxnreg_dec<Shape::kKeep>();
    if (warp == 4 * kGroups) {
      TileFetcher<kHeadDim>(launch, shared, lane).run();
    } else if (warp == 4 * kGroups + 1) {
      fetch_queries<kHeadDim>(launch, shared, lane);
    }
  }
#endif
}

}  // namespace ridge::cuda
