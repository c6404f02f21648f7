#include "engine/cuda/decode/decode_kernel.cuh"

namespace ridge::cuda {

void launch_decode_gemma_fp8(cudaStream_t stream, int sms, const DecodeArgs& args) {
  launch_decode_gemma<WeightFormat::fp8>(stream, sms, args);
}

}  // namespace ridge::cuda
