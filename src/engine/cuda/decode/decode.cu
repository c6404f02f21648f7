#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/device.cuh"
#include "engine/cuda/ptx/pipeline.cuh"

namespace ridge::cuda {
namespace {

__global__ void is_available(int* answer) {
#ifdef RIDGE_HOPPER
  *answer = 1;
#else
  *answer = 0;
#endif
}

}  // namespace

// One file per format: each compiles for about a minute.
void launch_decode_bf16(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_decode_fp8(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_decode_int8(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_decode_int4(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_decode_nf4(cudaStream_t stream, int sms, const DecodeArgs& args);

void launch_decode(cudaStream_t stream, int sms, WeightFormat format, DecodeArgs args) {
  switch (format) {
    case WeightFormat::bf16:
      return launch_decode_bf16(stream, sms, args);
    case WeightFormat::fp8:
      return launch_decode_fp8(stream, sms, args);
    case WeightFormat::int8:
      return launch_decode_int8(stream, sms, args);
    case WeightFormat::int4:
      return launch_decode_int4(stream, sms, args);
    case WeightFormat::nf4:
      return launch_decode_nf4(stream, sms, args);
  }
}

bool decode_available() {
  DeviceBuffer<int> answer(1);
  answer.fill_bytes(0);
  is_available<<<1, 1>>>(answer.data());
  return cudaDeviceSynchronize() == cudaSuccess && answer.host()[0] == 1;
}

}  // namespace ridge::cuda
