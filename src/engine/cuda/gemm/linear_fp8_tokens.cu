// Chains of GEMMs with weights in fp8 and activations in E4M3.
#include "engine/cuda/gemm/linear_kernel.cuh"

namespace ridge::cuda {

void launch_linear_fp8_tokens(cudaStream_t stream, int grid, int tile_tokens,
                              const GemmChain& chain) {
  switch (tile_tokens) {
    case 32:
      return launch_linear<WeightFormat::fp8, 32, true>(stream, grid, chain);
    case 64:
      return launch_linear<WeightFormat::fp8, 64, true>(stream, grid, chain);
    default:
      return launch_linear<WeightFormat::fp8, 128, true>(stream, grid, chain);
  }
}

}  // namespace ridge::cuda
