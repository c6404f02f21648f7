#include "engine/cuda/decode/decode_kernel.cuh"

namespace ridge::cuda {

void launch_decode_gemma_bf16(cudaStream_t stream, int sms, const DecodeArgs& args) {
  launch_decode_gemma<WeightFormat::bf16>(stream, sms, args);
}

}  // namespace ridge::cuda
