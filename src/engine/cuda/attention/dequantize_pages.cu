#include "base/ptx/execution.cuh"
#include "engine/cuda/attention/dequantize_pages.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/layout/kv_page.cuh"

namespace ridge::cuda {
namespace {

// One block per page and KV head. A thread converts rows of a core matrix: 8 dimensions of a key,
// or one dimension of 8 tokens' values.
constexpr int kThreads = 128;

template <KvFormat kFormat>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const __grid_constant__ DequantizePagesArgs a) {
  ptx::griddepcontrol_launch_dependents();
  const size_t number = a.pages[blockIdx.x];
  const uint8_t* page = a.kv + (number * a.kv_heads + blockIdx.y) * page_bytes(kFormat, a.head_dim);
  uint4* to = reinterpret_cast<uint4*>(a.to + (number * a.kv_heads + blockIdx.y) *
                                                  page_elements(a.head_dim));
  ptx::griddepcontrol_wait();
  const auto scaled = [](uint32_t halves, float low, float high) {
    const float2 v = __half22float2(*reinterpret_cast<const __half2*>(&halves));
    return pack_bf16(v.x * low, v.y * high);
  };
  const auto pair_at = [&](int byte) {
    uint32_t bits = *reinterpret_cast<const uint16_t*>(page + byte);
    if constexpr (kFormat == KvFormat::int8) bits ^= 0x8080u;
    return dequantize_pair<kFormat, 0>(bits);
  };
  const int rows = 2 * a.head_dim;  // of 8 elements, of K; V has as many
#pragma unroll 1
  for (int i = threadIdx.x; i < 2 * rows; i += kThreads) {
    const bool value = i >= rows;
    uint32_t pairs[4];
    if constexpr (kFormat == KvFormat::f16) {
      const uint4 v = reinterpret_cast<const uint4*>(page)[i];
      pairs[0] = scaled(v.x, 1, 1), pairs[1] = scaled(v.y, 1, 1);
      pairs[2] = scaled(v.z, 1, 1), pairs[3] = scaled(v.w, 1, 1);
    } else if (!value) {  // row i as key_at() lays it out
      const int token = i / a.head_dim * 8 + i % 8, d = i % a.head_dim / 8 * 8;
      const float scale = *reinterpret_cast<const float*>(page + key_scale_byte(token, a.head_dim));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        pairs[k] = scaled(pair_at(key_byte(token, d + k * 2)), scale, scale);
      }
    } else {  // as value_at()
      const int token = (i - rows) / a.head_dim * 8, d = (i - rows) % a.head_dim;
      const float* scale =
          reinterpret_cast<const float*>(page + value_scale_byte(token, a.head_dim));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        pairs[k] = scaled(pair_at(value_byte(token + k * 2, d, a.head_dim)), scale[k * 2],
                          scale[k * 2 + 1]);
      }
    }
    to[i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

}  // namespace

void dequantize_pages(cudaStream_t stream, KvFormat format, const DequantizePagesArgs& args) {
  const auto kernel = format == KvFormat::f16   ? dequantize_kernel<KvFormat::f16>
                      : format == KvFormat::fp8 ? dequantize_kernel<KvFormat::fp8>
                                                : dequantize_kernel<KvFormat::int8>;
  launch_dependent(kernel, dim3(args.count, args.kv_heads), kThreads, 0, stream, args);
}

}  // namespace ridge::cuda
