#include "engine/cuda/gemm/linear_kernel.cuh"

namespace ridge::cuda {

template void launch_linear_of<WeightFormat::bf16>(cudaStream_t stream, int grid, int tile_tokens,
                                                   const Chain& chain);

}  // namespace ridge::cuda
