#include "engine/cuda/gemm/prefill_gemm_kernel.cuh"

namespace ridge::cuda::prefill {

template void launch<WeightFormat::mxfp4, false>(cudaStream_t stream, int sms,
                                                 const PrefillGemmArgs& args);

}  // namespace ridge::cuda::prefill
