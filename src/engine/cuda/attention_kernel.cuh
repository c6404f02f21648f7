// The attention kernel (attention.cuh): one warp copies the cache's pages into a ring, warpgroups
// of 64 packed rows each take every tile of keys from it. Scores S = Q K^T, weights P = 2^(S -
// max), output O += P V; S becomes P in the registers where wgmma takes its A operand from.
//
// The scores of the next tile are under way, and before them nothing waits for the last tile's
// output, while the weights of this one are made; of two warpgroups one makes weights while the
// other's products run.
#pragma once

#include "engine/cuda/attention_items.cuh"
#include "engine/cuda/attention_wgmma.cuh"
#include "engine/cuda/mma.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

// Finite, so that a difference of two is zero and not NaN.
constexpr float kMasked = -1e30f;
constexpr float kLog2 = 1.4426950408889634f;

__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// One warpgroup's state and steps. Lane 4 g + t of warp w has rows 16 w + g and 8 further.
template <int kHeadDim, int kGroups>
struct Attender {
  using Shape = AttentionShape<kHeadDim, kGroups>;
  using Item = AttentionItem<kHeadDim, kGroups>;
  static constexpr int kKeys = Shape::kKeys;
  // Queries as wgmma's A: in registers where these suffice, which spares shared memory.
  static constexpr bool kHeld = kHeadDim <= 128;
  using Queries = uint32_t[kHeld ? kHeadDim / 16 : 1][4];

  const AttentionLaunch& launch;
  AttentionShared<kHeadDim, kGroups>& shared;
  const int warpgroup, warp, lane;

  // A constant where there is one only: bar.sync with a constant takes fewer barriers.
  __device__ int wg() const { return kGroups == 1 ? 0 : warpgroup; }

  // The warp's own 16 rows. Those behind the sequence's last stay as they are: what comes of them
  // goes nowhere.
  __device__ void fetch_queries(const Item& item) const {
    const AttentionArgs& args = launch.args;
    const int group = args.heads / args.kv_heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = wg() * 64 + warp * 16 + half * 8, r = item.first + row + lane % 8;
      if (r >= item.packed) continue;
      const int token = item.work.row + r / group, head = item.work.kv_head * group + r % group;
      const uint16_t* from = args.q + (size_t(token) * args.heads + head) * kHeadDim + lane / 8 * 8;
      const uint32_t to =
          shared_address(shared.queries) + row * kHeadDim * 2 + lane / 8 * 128 + lane % 8 * 16;
#pragma unroll
      for (int c = 0; c < kHeadDim / 32; ++c) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + c * 512),
                     "l"(from + c * 32)
                     : "memory");
      }
    }
  }
  __device__ void await_queries(Queries& q) const {
    asm volatile("cp.async.wait_all;" ::: "memory");
    if constexpr (kHeld) {
      __syncwarp();
      const uint32_t from = shared_address(shared.queries) +
                            (wg() * 64 + warp * 16 + lane / 8 % 2 * 8) * kHeadDim * 2 +
                            lane / 16 * 128 + lane % 8 * 16;
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        const uint4 a = load_matrices(from + k * 256);
        q[k][0] = a.x, q[k][1] = a.y, q[k][2] = a.z, q[k][3] = a.w;
      }
      __syncwarp();
    } else {
      fence_proxy_shared();
      bar_sync(1 + wg(), 128);
    }
  }

  __device__ void multiply_keys(float (&s)[kKeys / 2], const Queries& q, int slot) const {
    const uint64_t k = core_matrices(shared.ring[slot][0], 128, kHeadDim * 16);
    const uint64_t own =
        core_matrices(shared.queries + wg() * 64 * kHeadDim * 2, 128, kHeadDim * 16);
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      if constexpr (kHeld) {
        wgmma_registers<kKeys>(s, q[d / 16], further(k, d * 16), d > 0);
      } else {
        wgmma_shared<kKeys>(s, further(own, d * 16), further(k, d * 16), d > 0);
      }
    }
    wgmma_commit();
  }
  __device__ void multiply_values(float (&o)[kHeadDim / 2], const uint32_t (&p)[kKeys / 16][4],
                                  int slot) const {
    const uint64_t v = core_matrices(shared.ring[slot][1], kHeadDim * 16, 128);
#pragma unroll
    for (int page = 0; page < Shape::kPages; ++page) {
      wgmma<kHeadDim>(o, p[page], further(v, page * kHeadDim * 32));
    }
    wgmma_commit();
  }
  __device__ void release(int slot, int part) const {
    if (lane == 0) arrive(&shared.empty[slot][part]);
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
          if (j * 8 + e > last) s[j * 4 + r * 2 + e] = kMasked;
        }
      }
      if (window > 0) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (j * 8 + e <= last - window) s[j * 4 + r * 2 + e] = kMasked;
          }
        }
      }
    }
  }

  // c tanh(s / c) as c - 2 c / (e^(2 s / c) + 1): right to within c 2^-22 or so, which is what
  // counts in an exponent.
  __device__ void cap(float (&s)[kKeys / 2]) const {
    const float c = launch.args.softcap, in = 2 * kLog2 * launch.args.scale / c;
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
      float most[2] = {rows.most[r], kMasked};
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
      const float base = now == kMasked ? 0.0f : now * factor;
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

  __device__ void write(const Item& item, float (&o)[kHeadDim / 2], Rows& rows, float factor) {
    const AttentionArgs& args = launch.args;
    const int group = args.heads / args.kv_heads;
    const bool whole = Shape::kPrompts || item.span_high - item.span_low == 1;
    const size_t record =
        item.work.record +
        (size_t(item.work.part) * args.kv_heads + item.work.kv_head) * item.packed;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = rows.sum[r];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int row = item.first + wg() * 64 + warp * 16 + lane / 4 + r * 8;
      if (row >= item.packed) continue;
      if (whole) {
        const int token = item.work.row + row / group,
                  head = item.work.kv_head * group + row % group;
        const float share = 1 / sum;
        uint16_t* to = args.out + wide_at(head * kHeadDim, token, args.out_tokens) + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < kHeadDim / 8; ++j) {
          *reinterpret_cast<uint32_t*>(to + size_t(j / 8) * args.out_tokens * 64 + j % 8 * 64) =
              pack_bf16(o[j * 4 + r * 2] * share, o[j * 4 + r * 2 + 1] * share);
        }
      } else {
        float* to = launch.partial + (record + row) * kHeadDim + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < kHeadDim / 8; ++j) {
          *reinterpret_cast<float2*>(to + j * 8) = {o[j * 4 + r * 2], o[j * 4 + r * 2 + 1]};
        }
        if (lane % 4 == 0) launch.partial_sums[record + row] = {rows.most[r] * factor, sum};
      }
    }
    if (!whole) join(item);
  }

  // Who finishes last joins the spans' outputs, in order.
  __device__ void join(const Item& item) {
    const AttentionArgs& args = launch.args;
    bar_sync(1 + wg(), 128);
    if (warp == 0 && lane == 0) {
      unsigned* arrived = &launch.arrived[item.work.counter + item.work.kv_head];
      unsigned before;
      asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(arrived)
                   : "memory");
      shared.last = before == unsigned(item.span_high - item.span_low - 1);
      if (shared.last) *arrived = 0;
    }
    bar_sync(1 + wg(), 128);
    if (!shared.last) return;
    const int group = args.heads / args.kv_heads;
    const size_t step = size_t(args.kv_heads) * item.packed;
#pragma unroll 1
    for (int i = warp * 32 + lane; i < item.packed * (kHeadDim / 4); i += 128) {
      const int row = i / (kHeadDim / 4), d = i % (kHeadDim / 4) * 4;
      size_t at =
          item.work.record + item.span_low * step + size_t(item.work.kv_head) * item.packed + row;
      float most = kMasked, sum = 0;
      float4 out = {0, 0, 0, 0};
#pragma unroll 4
      for (int span = item.span_low; span < item.span_high; ++span, at += step) {
        const float2 its = __ldcg(launch.partial_sums + at);
        const float4 v =
            __ldcg(reinterpret_cast<const float4*>(launch.partial + at * kHeadDim + d));
        const float both = fmaxf(most, its.x);
        const float keep = power_of_2(most - both), add = power_of_2(its.x - both);
        sum = sum * keep + its.y * add;
        out = {out.x * keep + v.x * add, out.y * keep + v.y * add, out.z * keep + v.z * add,
               out.w * keep + v.w * add};
        most = both;
      }
      const float share = 1 / sum;
      const int token = item.work.row + row / group, head = item.work.kv_head * group + row % group;
      *reinterpret_cast<uint2*>(args.out + wide_at(head * kHeadDim + d, token, args.out_tokens)) = {
          pack_bf16(out.x * share, out.y * share), pack_bf16(out.z * share, out.w * share)};
    }
  }

  __device__ void run() {
    const AttentionArgs& args = launch.args;
    const int group = args.heads / args.kv_heads;
    const float factor = args.softcap > 0 ? kLog2 : args.scale * kLog2;
    AttentionShare<kHeadDim, kGroups> share(launch);
    after_previous();
    const auto fetch_next = [&] {
      if (share.more()) fetch_queries(Item(args, share.next()));
    };
    fetch_next();
    Place place;  // of the keys under way; values are one tile behind
#pragma unroll 1
    while (share.more()) {
      const Item item(args, share.take());
      Queries q;
      await_queries(q);
      if (!Shape::kPrompts && item.empty()) {
        fetch_next();
        continue;
      }
      int position[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = item.first + wg() * 64 + warp * 16 + lane / 4 + r * 8;
        position[r] = item.work.past + min(row, item.packed - 1) / group;
      }
      // Tiles below `clear` need no mask for being later; those from `inside` on none for being
      // too long ago. Of the whole warpgroup.
      const int top = item.first + wg() * 64;
      const int clear = (item.work.past + min(top, item.packed - 1) / group + 1) / kKeys;
      const int oldest = item.work.past + min(top + 63, item.packed - 1) / group + 1 - args.window;
      const int inside = args.window > 0 && oldest > 0 ? (oldest + kKeys - 1) / kKeys : 0;
      const auto prepare = [&](float(&s)[kKeys / 2], int tile) {
        if (args.softcap > 0) cap(s);
        if (tile >= clear || tile < inside) mask(s, tile * kKeys, position);
      };

      float s[kKeys / 2], o[kHeadDim / 2];
      uint32_t p[kKeys / 16][4];
      const auto pack = [&] {
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i) p[i / 4][i % 4] = pack_bf16(s[i * 2], s[i * 2 + 1]);
      };
      Rows rows = {{kMasked, kMasked}, {0, 0}};
      float shrink[2];
#pragma unroll
      for (int i = 0; i < kHeadDim / 2; ++i) o[i] = 0;

      wait(&shared.full[place.slot][0], place.parity);
      wgmma_fence();
      multiply_keys(s, q, place.slot);
      wgmma_wait<0>();
      release(place.slot, 0);
      prepare(s, item.tile_high - 1);
      weigh(s, rows, shrink, factor);
      pack();
      if constexpr (kHeld) fetch_next();
#pragma unroll 1
      for (int tile = item.tile_high - 2; tile >= item.tile_low; --tile) {
        const Place before = place;
        place.advance(Shape::kSlots);
        wait(&shared.full[place.slot][0], place.parity);
        wgmma_fence();
        multiply_keys(s, q, place.slot);
        wait(&shared.full[before.slot][1], before.parity);
        wgmma_fence();
        multiply_values(o, p, before.slot);
        wgmma_wait<1>();
        release(place.slot, 0);
        prepare(s, tile);
        weigh(s, rows, shrink, factor);
        wgmma_wait<0>();
        release(before.slot, 1);
        pack();
#pragma unroll
        for (int i = 0; i < kHeadDim / 2; ++i) o[i] *= shrink[i / 2 % 2];
      }
      if constexpr (!kHeld) {
        bar_sync(1 + wg(), 128);  // no warp reads queries any more
        fetch_next();
      }
      wait(&shared.full[place.slot][1], place.parity);
      wgmma_fence();
      multiply_values(o, p, place.slot);
      wgmma_wait<0>();
      release(place.slot, 1);
      place.advance(Shape::kSlots);
      write(item, o, rows, factor);
    }
  }
};

#endif

template <int kHeadDim, int kGroups>
__global__ void __launch_bounds__(AttentionShape<kHeadDim, kGroups>::kThreads,
                                  AttentionShape<kHeadDim, kGroups>::kBlocks)
    attention(const __grid_constant__ AttentionLaunch launch) {
#ifdef RIDGE_HOPPER
  using Shape = AttentionShape<kHeadDim, kGroups>;
  extern __shared__ __align__(128) uint8_t raw[];
  auto& shared = *reinterpret_cast<AttentionShared<kHeadDim, kGroups>*>(raw);
  static_assert(sizeof(shared) <= Shape::kSharedBytes);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Shape::kSlots; ++s) {
      for (int part = 0; part < 2; ++part) {
        init(&shared.full[s][part], 1);
        init(&shared.empty[s][part], 4 * kGroups);
      }
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  let_next_begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < 4 * kGroups) {
    if constexpr (Shape::kKeep > 0) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Shape::kGet));
    }
    Attender<kHeadDim, kGroups>{launch, shared, warp / 4, warp % 4, lane}.run();
  } else {
    if constexpr (Shape::kKeep > 0) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::kKeep));
    }
    if (warp == 4 * kGroups) fetch_tiles<kHeadDim, kGroups>(launch, shared, lane);
  }
#endif
}

}  // namespace ridge::cuda
