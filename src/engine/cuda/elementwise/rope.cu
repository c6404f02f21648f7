#include "base/ptx/execution.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/elementwise/rope.cuh"
#include "engine/cuda/layout/kv_page.cuh"

namespace ridge::cuda {
namespace {

// One block per run and KV head. Its warps take the queries and keys of the run's tokens in turn;
// the last warp also writes the values. Static shared memory: (cosine, sine) of up to 8 positions.
// One
// __syncthreads() separates their computation, which needs nothing of the previous kernel, from
// their use.
constexpr int kWarps = 8, kThreads = kWarps * 32;

constexpr int kMaxRun = 8;

template <int kHeadDim, KvFormat kFormat>
struct RopeWarp {
  static constexpr int kHalf = kHeadDim / 2, kPairs = (kHalf + 63) / 64;
  const RopeArgs& a;
  const int lane;

  __device__ uint8_t* page_of(int number, int kv_head) const {
    return a.kv + (size_t(number) * a.kv_heads + kv_head) * page_bytes(kFormat, kHeadDim);
  }

  // Norm and RoPE of one head: a query, which goes to `q` as bf16, or (q null) a key, which goes
  // into its slot of `page`. Lane l has elements 2 l + 64 n + {0, 1} of both halves, which rotate
  // together.
  __device__ void rotate(const float* from, const float* norm, const float2* rotation, uint16_t* q,
                         uint8_t* page, int slot) const {
    float2 x[kPairs] = {}, y[kPairs] = {};
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int i = lane * 2 + n * 64;
      if (i >= kHalf) continue;
      x[n] = *reinterpret_cast<const float2*>(from + i);
      y[n] = *reinterpret_cast<const float2*>(from + kHalf + i);
    }
    float scale = 1;
    if (norm) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        sum += x[n].x * x[n].x + x[n].y * x[n].y + y[n].x * y[n].x + y[n].y * y[n].y;
      }
      for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
      scale = rsqrtf(sum / kHeadDim + a.eps);
    }
    float magnitude = 0;
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int i = lane * 2 + n * 64;
      if (i >= kHalf) continue;
      float2 u = x[n], v = y[n];
      if (norm) {
        const float2 low = *reinterpret_cast<const float2*>(norm + i);
        const float2 high = *reinterpret_cast<const float2*>(norm + kHalf + i);
        u = {u.x * (scale * low.x), u.y * (scale * low.y)};
        v = {v.x * (scale * high.x), v.y * (scale * high.y)};
      }
      const float2 first = rotation[i], second = rotation[i + 1];
      x[n] = {u.x * first.x - v.x * first.y, u.y * second.x - v.y * second.y};
      y[n] = {v.x * first.x + u.x * first.y, v.y * second.x + u.y * second.y};
      magnitude = fmaxf(fmaxf(magnitude, fmaxf(fabsf(x[n].x), fabsf(x[n].y))),
                        fmaxf(fabsf(y[n].x), fabsf(y[n].y)));
    }
    Quantization quantized = {1, 1};
    if constexpr (kv_bytes(kFormat)) {
      magnitude = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(magnitude)));
      quantized = quantization<kFormat>(magnitude);
      if (lane == 0 && !q) {
        *reinterpret_cast<float*>(page + key_scale_byte(slot, kHeadDim)) = quantized.scale;
      }
    }
    const auto store = [&](int d, float2 v) {
      if (q) {
        *reinterpret_cast<uint32_t*>(q + d) = pack_bf16(v.x, v.y);
      } else if constexpr (kv_bytes(kFormat)) {
        *reinterpret_cast<uint16_t*>(page + key_byte(slot, d)) =
            uint16_t(quantize_pair<kFormat>(v.x * quantized.factor, v.y * quantized.factor));
      } else {
        *reinterpret_cast<uint32_t*>(page + 2 * key_at(slot, d, kHeadDim)) =
            quantize_pair<kFormat>(v.x, v.y);
      }
    };
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int i = lane * 2 + n * 64;
      if (i >= kHalf) continue;
      store(i, x[n]);
      store(kHalf + i, y[n]);
    }
  }

  // Writes the values of a run, `stride` floats from one token to the next. Lane l has elements
  // l + 32 i.
  __device__ void write_values(const float* from, size_t stride, int count, uint8_t* page,
                               int slot) const {
    float v[kMaxRun][kHeadDim / 32];
#pragma unroll
    for (int t = 0; t < kMaxRun; ++t) {
#pragma unroll
      for (int i = 0; i < kHeadDim / 32; ++i) {
        v[t][i] = t < count ? from[t * stride + lane + 32 * i] : 0.0f;
      }
    }
    if constexpr (kv_bytes(kFormat)) {
#pragma unroll
      for (int t = 0; t < kMaxRun; ++t) {
        float magnitude = 0;
#pragma unroll
        for (int i = 0; i < kHeadDim / 32; ++i) magnitude = fmaxf(magnitude, fabsf(v[t][i]));
        magnitude = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(magnitude)));
        const Quantization quantized = quantization<kFormat>(magnitude);
#pragma unroll
        for (int i = 0; i < kHeadDim / 32; ++i) v[t][i] *= quantized.factor;
        if (lane == 0 && t < count) {
          *reinterpret_cast<float*>(page + value_scale_byte(slot + t, kHeadDim)) = quantized.scale;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 32; ++i) {
      const int d = lane + 32 * i;
      uint32_t pair[kMaxRun / 2];
#pragma unroll
      for (int t = 0; t < kMaxRun; t += 2) {
        pair[t / 2] = quantize_pair<kFormat>(v[t][i], v[t + 1][i]);
      }
      if (count == kMaxRun) {
        if constexpr (kv_bytes(kFormat)) {
#pragma unroll
          for (int t = 0; t < kMaxRun; t += 2) {
            *reinterpret_cast<uint16_t*>(page + value_byte(slot + t, d, kHeadDim)) =
                uint16_t(pair[t / 2]);
          }
        } else {
          *reinterpret_cast<uint4*>(page + 2 * value_at(slot, d, kHeadDim)) = {pair[0], pair[1],
                                                                               pair[2], pair[3]};
        }
        continue;
      }
#pragma unroll
      for (int t = 0; t < kMaxRun; ++t) {
        if (t >= count) continue;
        if constexpr (kv_bytes(kFormat)) {
          page[value_byte(slot + t, d, kHeadDim)] = uint8_t(pair[t / 2] >> t % 2 * 8);
        } else {
          *reinterpret_cast<uint16_t*>(page + 2 * value_at(slot + t, d, kHeadDim)) =
              uint16_t(pair[t / 2] >> t % 2 * 16);
        }
      }
    }
  }
};

template <int kHeadDim, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads) rope_kernel(const __grid_constant__ RopeArgs a) {
  constexpr int kHalf = kHeadDim / 2;
  __shared__ float2 rotation[kMaxRun][kHalf];
  ptx::griddepcontrol_launch_dependents();
  const RopeRun run = a.runs[blockIdx.x];
  const KvSlot at = a.kv_slots[run.row];  // of the first token
  for (int i = threadIdx.x; i < run.count * kHalf; i += kThreads) {
    float sine, cosine;
    const float frequency = a.frequency[i % kHalf];
    const float magnitude = frequency == 0 ? 1 : a.magnitude;  // 0: not rotated
    sincosf(static_cast<float>(at.position + i / kHalf) * frequency, &sine, &cosine);
    rotation[i / kHalf][i % kHalf] = {cosine * magnitude, sine * magnitude};
  }
  __syncthreads();
  ptx::griddepcontrol_wait();
  const int kv_head = blockIdx.y, group = a.heads / a.kv_heads, warp = threadIdx.x / 32;
  const size_t columns = size_t(a.heads + 2 * a.kv_heads) * kHeadDim;
  const float* rows = a.qkv + run.row * columns;
  const RopeWarp<kHeadDim, kFormat> rope{a, int(threadIdx.x % 32)};
  uint8_t* page = rope.page_of(at.page, kv_head);
  if (warp == kWarps - 1) {
    rope.write_values(rows + (a.heads + a.kv_heads + kv_head) * kHeadDim, columns, run.count, page,
                      at.slot);
  }
#pragma unroll 1
  for (int i = warp; i < (group + 1) * run.count; i += kWarps) {
    const int token = i % run.count, in_group = i / run.count;
    const bool query = in_group < group;
    const int head = query ? kv_head * group + in_group : a.heads + kv_head;
    rope.rotate(rows + token * columns + head * kHeadDim, query ? a.q_norm : a.k_norm,
                rotation[token],
                query ? a.q + (size_t(run.row + token) * a.heads + head) * kHeadDim : nullptr, page,
                at.slot + token);
  }
}

template <KvFormat kFormat>
void launch_format(cudaStream_t stream, const RopeArgs& args) {
  const auto kernel = args.head_dim == 64    ? rope_kernel<64, kFormat>
                      : args.head_dim == 128 ? rope_kernel<128, kFormat>
                                             : rope_kernel<256, kFormat>;
  launch_dependent(kernel, dim3(args.count, args.kv_heads), kThreads, 0, stream, args);
}

}  // namespace

void rope_and_append(cudaStream_t stream, KvFormat format, const RopeArgs& args) {
  switch (format) {
    case KvFormat::bf16:
      return launch_format<KvFormat::bf16>(stream, args);
    case KvFormat::f16:
      return launch_format<KvFormat::f16>(stream, args);
    case KvFormat::fp8:
      return launch_format<KvFormat::fp8>(stream, args);
    case KvFormat::int8:
      return launch_format<KvFormat::int8>(stream, args);
  }
}

}  // namespace ridge::cuda
