// What becomes of the sums of a GEMM: scales, bias, softcap, the residual, the gated activation.
#pragma once

#include "base/ptx/mma.cuh"
#include "engine/cuda/gemm/linear.cuh"

namespace ridge::cuda {

// What both kernels rely on in x: core matrices of 8 tokens x 8 columns, 128 contiguous bytes; 64
// columns of 8 tokens are 1 KB.
static_assert(wide_at(0, 1, 32) == 8 && wide_at(8, 0, 32) == 64 && wide_at(0, 8, 32) == 512 &&
              wide_at(64, 0, 32) == 32 * 64);

// gate_times_up() with each gate as v / (1 + e^-s), since tanh(u) = 1 - 2 / (1 + e^2u). Inlined for
// every number of a tile, tanhf() and an exact division are more code than the rest of the kernel,
// and all of it is fetched anew for every tile.
__device__ __forceinline__ float gated(Activation activation, float v, float up) {
  float s = v;
  if (activation == Activation::gelu_tanh) s = 1.5957691216f * (v + 0.044715f * v * v * v);
  if (activation == Activation::clamped_swiglu) {
    v = fminf(v, kSwigluLimit), s = kSwigluSlope * v;
    up = fminf(fmaxf(up, -kSwigluLimit), kSwigluLimit) + 1;
  }
  return __fdividef(v, 1 + __expf(-s)) * up;
}

// Stores 16 rows x 8 kGroups tokens, as mma.m16n8k16 leaves them: lane 4 g + t has rows g and g + 8
// of tokens 2 t and 2 t + 1 of each group. All lanes call it. `matrix`: of the row scales and the
// experts' biases.
template <int kGroups>
__device__ __forceinline__ void store_fragments(const LinearArgs& a, int matrix, int block,
                                                int first_token, const float (&d)[kGroups][4],
                                                int lane) {
  const int row = block * kBlockRows + lane / 4;  // and the eighth after it
  float scale[2] = {1, 1};
  if (a.tiles.row_scale) {
    const float* scales = a.tiles.row_scale + size_t(matrix) * a.tiles.blocks * kBlockRows + row;
    scale[0] = scales[0], scale[1] = scales[8];
  }
  const int rows_left = a.row_count - row;
  float bias[2] = {0, 0};
  if (a.bias) {
    const float* biases = a.bias + size_t(matrix - a.matrix) * a.bias_stride + row;
    if (rows_left > 0) bias[0] = biases[0];
    if (rows_left > 8) bias[1] = biases[8];
  }
  if (a.epilogue == Epilogue::gate) {
    const int token = first_token + lane / 4;
    uint16_t* to = a.out + wide_at(block * 8 + lane % 4 * 2, token, a.padded);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      uint32_t pair = pack_bf16(
          gated(a.activation, d[g][0] * scale[0] + bias[0], d[g][2] * scale[1] + bias[1]),
          gated(a.activation, d[g][1] * scale[0] + bias[0], d[g][3] * scale[1] + bias[1]));
      ptx::movmatrix_trans(pair);  // two adjacent rows of one token
      if (token + g * 8 < a.tokens) *reinterpret_cast<uint32_t*>(to + g * 512) = pair;
    }
    return;
  }
  const int token = first_token + lane % 4 * 2, left = a.tokens - token;
  float* const rows = a.rows + size_t(token) * a.stride + row;
  const auto valid = [&](int g, int v) { return g * 8 + v % 2 < left && v / 2 * 8 < rows_left; };
  const auto at = [&](int g, int v) { return rows + size_t(g * 8 + v % 2) * a.stride + v / 2 * 8; };
  // All loads before the first store: the compiler must assume that a store changes what is read
  // after it, and would load one number after the other.
  float y[kGroups][4] = {};
  if (a.epilogue == Epilogue::add) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        if (valid(g, v)) y[g][v] = *at(g, v);
      }
    }
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      if (valid(g, v)) *at(g, v) = y[g][v] + (d[g][v] * scale[v / 2] + bias[v / 2]);
    }
  }
  if (a.softcap > 0) {  // of logits alone; a loop, since it is much code
#pragma unroll 1
    for (int i = 0; i < kGroups * 4; ++i) {
      if (!valid(i / 4, i % 4)) continue;
      float& capped = *at(i / 4, i % 4);
      capped = a.softcap * tanhf(capped / a.softcap);
    }
  }
}

}  // namespace ridge::cuda
