// Norms after blocks (Gemma, GLM-4) in the decode kernel.
//
// The output y of attention or of the MLP is normed before it is added to the residual h:
//   h' = h + s w y,  s = 1 / sqrt(mean(y^2) + eps)
// and the next GEMM multiplies its matrix M with v h' / sqrt(mean(h'^2) + eps). w and v are the
// weights of the two norms. s is known when all SMs have their rows of y, which would be an
// exchange before the one that every operator has. But the GEMM is linear:
//   M (v h')   = M (v h) + s M (v w y)
//   sum(h'^2)  = sum(h^2) + 2 s sum(h w y) + s^2 sum((w y)^2)
// So v h and v w y are two columns of the GEMM's input, and its epilogue adds them when s has
// arrived. The residual is completed by the epilogue that adds the next block's output to it.
#pragma once

#include <cfloat>

#include "engine/cuda/decode/decode_schedule.cuh"
#include "engine/cuda/decode/decode_sync.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

// Sums over the columns of a block, or of a row: of h^2, h w y, (w y)^2 and y^2.
struct alignas(16) BlockSums {
  float residual, product, added, output;
};
// Of a row, [block].
__device__ inline BlockSums* block_sums_of(const DecodeArgs& args, OpKind kind, int row) {
  return reinterpret_cast<BlockSums*>(args.sums_of_squares) +
         (norm_index(kind) * kMaxRows + row) * (args.hidden / kBlockRows);
}

// A block's sums, over the 16 lanes that have its columns. The first two exchanges each halve the
// number of sums that a lane holds, so five shuffles suffice. All lanes of the warp call it.
__device__ inline void publish_block_sums(BlockSums* to, bool valid, float h, float added, float y,
                                          int lane) {
  const bool upper = lane & 8, second_sum = lane & 4;
  float first = upper ? added * added : h * h, second = upper ? y * y : h * added;
  first += __shfl_xor_sync(0xffffffffu, upper ? h * h : added * added, 8);
  second += __shfl_xor_sync(0xffffffffu, upper ? h * added : y * y, 8);
  float sum = second_sum ? second : first;
  sum += __shfl_xor_sync(0xffffffffu, second_sum ? first : second, 4);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (valid && lane % 4 == 0) __stcg(reinterpret_cast<float*>(to) + upper * 2 + second_sum, sum);
}

// Waits for the sums of all blocks and adds them up, for all rows. One warp; lane 0 has the result.
template <int kRows>
__device__ inline void add_block_sums(const DecodeArgs& args, OpKind kind, int lane,
                                      float (&sum)[kRows][4]) {
  constexpr int kInFlight = 8 / kRows;  // of a row and lane
  const int blocks = args.hidden / kBlockRows;
  bool again = true;
  while (again) {
    again = false;
#pragma unroll
    for (auto& of_row : sum) of_row[0] = of_row[1] = of_row[2] = of_row[3] = 0;
#pragma unroll 1
    for (int first = lane; first < blocks; first += 32 * kInFlight) {
      float of_block[kInFlight][kRows][4];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
#pragma unroll
        for (int n = 0; n < kRows; ++n) {
          float(&to)[4] = of_block[i][n];
          to[0] = to[1] = to[2] = to[3] = 0;
          if (first + 32 * i < blocks && n < args.row_count) {
            ptx::ld_relaxed(&block_sums_of(args, kind, n)[first + 32 * i].residual, to);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
#pragma unroll
        for (int n = 0; n < kRows; ++n) {
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            again |= __float_as_uint(of_block[i][n][v]) == kNotReadyFloat;
            sum[n][v] += of_block[i][n][v];
          }
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      for (int across = 16; across; across /= 2) {
        sum[n][v] += __shfl_xor_sync(0xffffffffu, sum[n][v], across);
      }
    }
  }
}

// The scale of the norm after the block, s above, and that of the norm before the next GEMM. Where
// no norm follows the block, nothing is added later, and s only has to be finite.
struct NormScales {
  float added, input;
};
__device__ inline NormScales norm_scales(const DecodeArgs& args, const float (&sum)[4]) {
  const float columns = static_cast<float>(args.hidden);
  const float s = rsqrtf(fmaxf(sum[3] / columns + args.norm_eps, FLT_MIN));
  const float squares = sum[0] + s * (2 * sum[1] + s * sum[2]);
  return {s, rsqrtf(fmaxf(squares, 0.0f) / columns + args.norm_eps)};
}

}  // namespace ridge::cuda
#endif
