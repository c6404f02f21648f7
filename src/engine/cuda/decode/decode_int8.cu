#include "engine/cuda/decode/decode_kernel.cuh"

namespace ridge::cuda {

void launch_decode_int8(cudaStream_t stream, int sms, const DecodeArgs& args) {
  launch_decode_format<WeightFormat::int8, KernelSet::hopper>(stream, sms, args);
}

}  // namespace ridge::cuda
