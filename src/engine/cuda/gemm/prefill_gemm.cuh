// GEMM y = W x for prompts: tiles of 128 rows x 256 tokens, each computed by one block over all of
// K. It reads the weight tiles of linear.cuh and has the same epilogues. With activations in bf16
// it gives the same bits as linear.cuh, which calls it where whole tiles of 256 tokens fill the
// SMs. With weights in fp8 it also multiplies activations in E4M3, at twice the rate.
// prefill_gemm_kernel.cuh draws the warps.
#pragma once

#include "engine/cuda/gemm/linear.cuh"

namespace ridge::cuda {

struct PrefillGemmArgs {
  CUtensorMap weights;       // boxes of 128 rows x one stage of K
  CUtensorMap tokens;        // boxes of 128 tokens x one stage of K
  CUtensorMap rows;          // Epilogue::store, add: LinearArgs::rows, boxes of 32 rows x 16 tokens
  LinearArgs gemm;           // its own tensor map is not used
  const float* token_scale;  // [padded], with activations in E4M3
};

// Whether prefill_gemm() computes this; launch() of linear.cuh has set row_tiles and stream_k.
bool has_prefill_gemm(const LinearArgs& args, int tile_tokens);

// Queues a dependent launch (device.cuh).
void prefill_gemm(cudaStream_t stream, WeightFormat format, int sms, const LinearArgs& args);

// Weights in fp8, activations in E4M3: args.x is laid out by fp8_at() (layout/tiles.cuh), and token
// t is multiplied by token_scale[t]. K is a multiple of 128.
//
// The sums of an output are those of the tensor cores, which keep 14 bits of the largest addend of
// each 32 columns (the "fast accumulation" of cuBLAS): bench/cuda_linear_bench.cu derives a bound.
void prefill_gemm_fp8(cudaStream_t stream, int sms, const LinearArgs& args,
                      const float* token_scale);

// What they call. One file for each format, made by cmake/instances.cmake, instantiates it.
namespace prefill {
template <WeightFormat kFormat, bool kFp8Tokens>
void launch(cudaStream_t stream, int sms, const PrefillGemmArgs& args);
}

}  // namespace ridge::cuda
