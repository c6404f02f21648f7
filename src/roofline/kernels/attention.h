// The expected time of one attention kernel (with the passes a stack runs around it), for new
// prompts and for decoding. MLA is the same with its own widths, see mla.h.
#pragma once

#include "cost/attention.h"
#include "roofline/kernels/params.h"
#include "roofline/kernels/traits.h"

namespace ridge {

// A shape, a batch and the conditions under which the kernel runs.
struct AttentionCall : AttentionShape {
  double batch = 1;
  double length = 1;  // prompt: new tokens of one sequence; decode: cached tokens + 1
  double past = 0;    // prompt: tokens of one sequence that are in the cache already
  DType math = DType::bf16;
  bool shared_kv = false;  // V is a part of K's bytes (absorbed MLA)
  bool resident = true;    // the cache may still be in L2 from the last step
};

// t = t0 + pre-pass bytes + smooth_max(work of all SMs, longest block, cached K and V) with causal
// tiles. Cached tokens add keys to every tile, and nothing to t0 and the pre-pass: those are paid
// once per kernel and per new token.
struct PrefillParams {
  double t0 = 10e-6;      // kernels around the core, launches, drain
  double compute = 0.7;   // share of the peak in the two products
  double pair = 6;        // SM clocks per 128 (query, key) pairs spent in softmax
  double wide = 0.1;      // loss of compute per doubling of the head beyond 128
  double tile = 128;      // query rows of a block
  double block = 1e-6;    // seconds to start and drain one block
  double longest = 1;     // weight of the longest block's path
  double overlap = 2.5;   // exponent of smooth_max
  double prepass = 1;     // times q, k and v pass device memory besides the core
  double l2_speed = 2.5;  // how much faster when they fit L2
  double throttle = 0.1;  // see power_share
  double throttle_s = 5e-4;
  double pack = 0.5;          // 1: the heads of a group share query tiles; 0: they do not
  double narrow = 0;          // loss of compute per halving of the head below 128
  double window_waste = 0.5;  // tiles computed beyond the window, in tiles
  static std::span<const Field<PrefillParams>> fields();
};
double prefill_seconds(const AttentionCall& call, const GpuTraits& gpu,
                       const PrefillParams& params);

// t = t0 + per-sequence work + smooth_max(KV bytes, blocks on SMs) + combine of split KV.
struct DecodeParams {
  double t0 = 9e-6;
  double memory = 0.8;     // share of device bandwidth
  double l2 = 1;           // share of L2 that keeps the cache between steps
  double l2_speed = 2;     // L2-resident rate over device memory
  double sm_rate = 60;     // bytes per clock one SM can take in
  double compute = 0.4;    // share of the peak in the two products
  double rows = 16;        // query rows an MMA tile takes at least
  double chunk = 256;      // fewest tokens of one split
  double block = 1e-6;     // seconds to start and drain one block
  double wave = 0.5;       // 1: whole waves only
  double combine = 2e-6;   // seconds of the reduction over splits
  double sequence = 1e-8;  // seconds per sequence and 64 heads of q, output and cache write
  double overlap = 3;
  double single = 1;         // bandwidth factor without grouped heads (one query row)
  double split_waves = 1;    // waves of blocks the splitting aims at
  double wide = 0;           // loss of bandwidth per doubling of the head beyond 128
  double unit = 1e-10;       // seconds per sequence and KV head
  double group_most = 200;   // larger groups fall back to one head at a time, which re-reads the KV
  double window_groups = 1;  // below 0.5: heads are not grouped under a window
  static std::span<const Field<DecodeParams>> fields();
};
double decode_seconds(const AttentionCall& call, const GpuTraits& gpu, const DecodeParams& params);

}  // namespace ridge
