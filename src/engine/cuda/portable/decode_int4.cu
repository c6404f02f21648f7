#include "engine/cuda/decode/decode_kernel.cuh"

namespace ridge::cuda {

void launch_portable_decode_int4(cudaStream_t stream, int sms, const DecodeArgs& args) {
  launch_decode_format<WeightFormat::int4, KernelSet::portable>(stream, sms, args);
}

}  // namespace ridge::cuda
