// The expected time of one dense GEMM as a stack runs it.
#pragma once

#include "cost/matmul.h"
#include "roofline/kernels/params.h"
#include "roofline/kernels/traits.h"

namespace ridge {

// A shape and the conditions under which the kernel runs.
struct GemmCall : MatmulShape {
  bool quantize = false;      // 16-bit activations are converted first, in their own pass
  double reuse_bytes = 1e18;  // bytes touched before the same weights are read again: a layer of a
                              // model sees all other layers in between (cold)
};

// t = t0 + quantize + smooth_max(tiles on SMs, bytes through memory) (+ split-K reduction).
// Seconds unless said.
struct GemmParams {
  double t0 = 2.5e-6;         // launch, first loads, drain
  double compute = 0.85;      // share of the peak one busy SM reaches inside the main loop
  double memory = 0.85;       // share of device bandwidth a full machine streams
  double feed = 40;           // bytes per clock and SM from L2 into shared memory
  double fill = 160;          // k-elements a CTA loses to its prologue and epilogue
  double wave = 0.7;          // 1: whole waves only; 0: work spreads perfectly
  double busy = 0.6;          // CTAs per SM that saturate device memory
  double split = 2.0e-6;      // extra time of a split-K reduction
  double overlap = 4;         // exponent of smooth_max
  double l2 = 1;              // share of L2 that keeps data between uses
  double l2_speed = 2.5;      // L2-resident bytes stream this many times faster than device memory
  double quant = 0.6;         // share of bandwidth of the quantization pass
  double quant_row = 4e-10;   // seconds per element of one row in the quantization pass
  double quant_start = 1e-7;  // seconds one SM needs to start a row of the quantization pass
  double dispatch = 0;    // 0: the best tile and split is found (cuBLAS); 1, 2: rows alone decide,
                          // up to 128 x 128 or 256 x 128 (CUTLASS kernels compiled per row range)
  double single = 0;      // extra seconds of a one-row product
  double throttle = 0.1;  // see power_share
  double throttle_s = 3e-4;
  double decline = 0.1;
  double write = 1;    // cost of an output byte over an input byte
  double small = 0.1;  // loss of compute per halving of the tile below 128 x 256
  static std::span<const Field<GemmParams>> fields();
};

double gemm_seconds(const GemmCall& call, const GpuTraits& gpu, const GemmParams& params);

}  // namespace ridge
