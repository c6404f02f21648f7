#include "engine/cuda/gemm/linear_kernel.cuh"

namespace ridge::cuda {

template void launch_linear_format<WeightFormat::mxfp4>(cudaStream_t stream, int grid,
                                                        int tile_tokens, const GemmChain& chain);

}  // namespace ridge::cuda
