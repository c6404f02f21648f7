// The decode kernel (decode/decode.cuh) with the portable producer, one file per format.
#include "base/error.h"
#include "engine/cuda/decode/decode.cuh"

namespace ridge::cuda {

void launch_portable_decode_bf16(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_portable_decode_fp8(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_portable_decode_int8(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_portable_decode_int4(cudaStream_t stream, int sms, const DecodeArgs& args);
void launch_portable_decode_nf4(cudaStream_t stream, int sms, const DecodeArgs& args);

void launch_portable_decode(cudaStream_t stream, int sms, WeightFormat format,
                            const DecodeArgs& args) {
  switch (format) {
    case WeightFormat::bf16:
      return launch_portable_decode_bf16(stream, sms, args);
    case WeightFormat::fp8:
      return launch_portable_decode_fp8(stream, sms, args);
    case WeightFormat::int8:
      return launch_portable_decode_int8(stream, sms, args);
    case WeightFormat::int4:
      return launch_portable_decode_int4(stream, sms, args);
    case WeightFormat::nf4:
      return launch_portable_decode_nf4(stream, sms, args);
    case WeightFormat::mxfp4:
      break;
  }
  throw Error("the decode kernel has no code for MXFP4");  // has_variant()
}

}  // namespace ridge::cuda
