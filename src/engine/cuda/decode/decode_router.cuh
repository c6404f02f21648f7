// Experts in the decode kernel, for one row: the router, and the choice of experts.
//
// The router is an operator of its own between out and gate_up: an epilogue warp multiplies the
// residual, times the norm's weights, with one expert's row of the router, and publishes the sum.
// The norm's scale, which makes a logit of it, is common to all experts and changes no order. Every
// warp that needs the choice reads all sums and computes it itself, so nothing else is exchanged:
// the producer for the addresses of weights, the epilogue warps for scales and weights of the
// choices.
#pragma once

#include "base/ptx/memory_order.cuh"
#include "engine/cuda/decode/decode_schedule.cuh"
#include "engine/cuda/decode/decode_sync.cuh"

namespace ridge::cuda {

constexpr int kMaxRoutedExperts = 128;

#ifdef __CUDA_ARCH__

// One expert of the row: lane k has the k-th best. Of equal logits the lower expert is better.
struct Choice {
  int expert;
  float weight;
};

// Waits for the sums with this tag; `scale` makes logits of them. One warp.
__device__ inline Choice choose_experts(const DecodeArgs& args, unsigned tag, float scale,
                                        int lane) {
  constexpr int kPerLane = kMaxRoutedExperts / 32;
  TaggedFloat published[kPerLane];
  bool again = true;
  while (again) {  // all of a lane's sums in one round trip
    again = false;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = lane + 32 * i;
      published[i] = {0, tag};
      if (expert < args.experts) published[i] = load_tagged(args.router_sums + expert);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) again |= published[i].tag != tag;
  }
  uint32_t key[kPerLane];  // ordered as the sums are; 0: no expert, or one already chosen
  uint32_t best = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    key[i] = lane + 32 * i < args.experts ? logit_key(published[i].value, 0) >> 32 : 0;
    best = max(best, key[i]);
  }
  const auto value = [](uint32_t k) { return key_logit(static_cast<unsigned long long>(k) << 32); };
  const float most = value(__reduce_max_sync(0xffffffffu, best));
  float total = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (lane + 32 * i < args.experts) total += __expf((value(key[i]) - most) * scale);
  }
  for (int across = 16; across; across /= 2) total += __shfl_xor_sync(0xffffffffu, total, across);
  uint32_t chosen_key = 0;
  unsigned chosen = 0;
#pragma unroll 1
  for (int k = 0; k < args.top_k; ++k) {
    best = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = max(best, key[i]);
    best = __reduce_max_sync(0xffffffffu, best);
    unsigned which = args.experts - 1;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (key[i] == best) which = min(which, lane + 32 * i);
    }
    which = __reduce_min_sync(0xffffffffu, which);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (which == lane + 32 * i) key[i] = 0;
    }
    if (lane == k) chosen_key = best, chosen = which;
  }
  float weight = lane < args.top_k ? __expf((value(chosen_key) - most) * scale) / total : 0;
  if (args.normalize_top_k) {
    float sum = weight;
    for (int across = 16; across; across /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
    weight /= sum;
  }
  return {static_cast<int>(chosen), weight};
}

// One warp: asks L2 for the row of `expert` in the router, half of every 128 bytes that hold it.
__device__ inline void prefetch_router(const DecodeArgs& args, int layer, int expert, int lane) {
  const uint8_t* row = args.router.data + layer * args.router.stride +
                       size_t(expert / kBlockRows) * args.router.chunks * 512 + expert % 8 * 64;
  for (int chunk = lane; chunk < args.router.chunks; chunk += 32) {
    ptx::prefetch_l2(row + size_t(chunk) * 512);
  }
}

// One warp: the row of `expert` in the router times the input of gate_up, before the norm's scale.
// The router's weights lie as A operands (tiles.cuh): lane 4 g + t of a chunk has, for row g in its
// words 0 and 2 and for row g + 8 in words 1 and 3, the four columns that the activations have in
// the 8 bytes of t. So four lanes multiply one chunk, 16 columns.
__device__ inline float router_sum(const DecodeArgs& args, int layer, int expert, int lane) {
  constexpr int kInFlight = 16;
  const int row = expert % kBlockRows, t = lane % 4;
  const uint8_t* weights = args.router.data + layer * args.router.stride +
                           size_t(expert / kBlockRows) * args.router.chunks * 512 +
                           (row % 8 * 4 + t) * 16 + row / 8 * 4;
  const uint16_t* x = activations_of(args, OpKind::gate_up);
  float sum = 0;
#pragma unroll 1
  for (int first = lane / 4; first < args.hidden / 16; first += 8 * kInFlight) {
    uint32_t w[kInFlight][2];
    uint2 v[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int chunk = first + 8 * i;
      const auto* at = reinterpret_cast<const uint32_t*>(weights + size_t(chunk) * 512);
      w[i][0] = w[i][1] = 0;
      if (chunk < args.hidden / 16) w[i][0] = __ldg(at), w[i][1] = __ldg(at + 2);
    }
    bool again = true;
    while (again) {
      again = false;
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int chunk = first + 8 * i;
        v[i] = {0, 0};
        if (chunk < args.hidden / 16) {
          const unsigned long long pair = ptx::ld_relaxed(
              reinterpret_cast<const unsigned long long*>(x + (size_t(chunk) * 4 + t) * 4));
          v[i] = {static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32)};
        }
        again |= not_ready(uint4{v[i].x, v[i].y, 0, 0});
      }
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const uint32_t a[2] = {v[i].x, v[i].y};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum = fmaf(__uint_as_float(a[half] << 16), __uint_as_float(w[i][half] << 16), sum);
        sum = fmaf(__uint_as_float(a[half] & 0xffff0000u),
                   __uint_as_float(w[i][half] & 0xffff0000u), sum);
      }
    }
  }
  for (int across = 16; across; across /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
  return sum;
}

#endif

}  // namespace ridge::cuda
