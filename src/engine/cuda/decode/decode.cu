#include <algorithm>

#include "engine/cuda/decode/decode_shared_memory.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/device_limits.h"
#include "engine/cuda/device/pipeline.cuh"

namespace ridge::cuda {
namespace {

__global__ void is_available(int* answer) {
#ifdef RIDGE_HOPPER
  *answer = 1;
#else
  *answer = 0;
#endif
}

template <KernelSet kKernels>
void launch_decode_of(cudaStream_t stream, int sms, WeightFormat format, const DecodeArgs& args) {
  switch (format) {
    case WeightFormat::bf16:
      return launch_decode_format<WeightFormat::bf16, kKernels>(stream, sms, args);
    case WeightFormat::fp8:
      return launch_decode_format<WeightFormat::fp8, kKernels>(stream, sms, args);
    case WeightFormat::int8:
      return launch_decode_format<WeightFormat::int8, kKernels>(stream, sms, args);
    case WeightFormat::int4:
      return launch_decode_format<WeightFormat::int4, kKernels>(stream, sms, args);
    case WeightFormat::nf4:
      return launch_decode_format<WeightFormat::nf4, kKernels>(stream, sms, args);
    case WeightFormat::mxfp4:
      break;
  }
  throw Error("the decode kernel has no code for MXFP4");  // has_variant()
}

}  // namespace

int decode_rows(WeightFormat format, const DecodeArgs& args) {
  if (args.kernels == KernelSet::hopper) return kMaxRows;
  int columns = args.experts > 0 ? args.top_k * args.choice_stride : 0;
  for (const Tiles* tiles : {&args.qkv, &args.out, &args.gate_up, &args.down, &args.head}) {
    columns = std::max(columns, tiles->chunks * format_info(format).columns);
  }
  // A ring of two stages beside the activations of one row. 8 rows get a ring of four: as a card
  // with 99 KB an H200 took 5.70 ms for 8 rows in bf16, and operator by operator 5.10.
  const auto fits = [&](int rows, int activations, int stages) {
    activations = std::max(activations, attention_state_bytes(args));
    return int(sizeof(DecodeControl)) + 256 + activations +
               group_scale_bytes(format, rows, activations) + level_bytes(format, rows) +
               int(partial_bytes(rows)) + rope_bytes(args, rows) + head_norm_bytes(args) +
               stages * stage_bytes(format) <=
           device_limits().shared_bytes;
  };
  if (!fits(1, columns * 2, 2)) return 0;
  return args.experts > 0 || !fits(kMaxRows, kMaxColumns * 2, 4) ? 1 : kMaxRows;
}

void launch_decode(cudaStream_t stream, int sms, WeightFormat format, DecodeArgs args) {
  if (args.kernels == KernelSet::portable) {
    return launch_decode_of<KernelSet::portable>(stream, sms, format, args);
  }
  if (args.variant == DecodeVariant::gemma) {
    return format == WeightFormat::fp8 ? launch_decode_gemma<WeightFormat::fp8>(stream, sms, args)
                                       : launch_decode_gemma<WeightFormat::bf16>(stream, sms, args);
  }
  launch_decode_of<KernelSet::hopper>(stream, sms, format, args);
}

bool decode_available() {
  DeviceBuffer<int> answer(1);
  answer.fill_bytes(0);
  is_available<<<1, 1>>>(answer.data());
  return cudaDeviceSynchronize() == cudaSuccess && answer.host()[0] == 1;
}

}  // namespace ridge::cuda
