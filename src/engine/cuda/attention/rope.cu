#include "engine/cuda/attention/kv_page.cuh"
#include "engine/cuda/attention/rope.cuh"
#include "engine/cuda/device.cuh"
#include "engine/cuda/layout/dequantize.cuh"

namespace ridge::cuda {
namespace {

// A block a run and KV head: its tokens' queries and keys by warps in turn, the values by one.
constexpr int kTurnWarps = 8;

#ifdef RIDGE_HOPPER

constexpr int kMostOfRun = 8;

template <int kHeadDim, KvFormat kFormat>
struct Turner {
  static constexpr int kHalf = kHeadDim / 2, kPairs = (kHalf + 63) / 64;
  const RopeArgs& a;
  const int lane;

  __device__ uint8_t* page_of(int number, int kv_head) const {
    return a.kv + (size_t(number) * a.kv_heads + kv_head) * page_bytes(kFormat, kHeadDim);
  }

  // A query (as bf16 to `q`) or a key (into its slot of `page`); a lane has pairs 2 l + 64 n of
  // both halves.
  __device__ void turn(const float* from, const float* norm, const float2* rotation, uint16_t* q,
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
      for (int across = 16; across; across /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
      scale = rsqrtf(sum / kHeadDim + a.eps);
    }
    float most = 0;
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
      most = fmaxf(fmaxf(most, fmaxf(fabsf(x[n].x), fabsf(x[n].y))),
                   fmaxf(fabsf(y[n].x), fabsf(y[n].y)));
    }
    float2 byte = {1, 1};
    if constexpr (kv_bytes(kFormat)) {
      most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
      byte = quantization<kFormat>(most);
      if (lane == 0 && !q) {
        *reinterpret_cast<float*>(page + key_scale_byte(slot, kHeadDim)) = byte.x;
      }
    }
    const auto store = [&](int d, float2 v) {
      if (q) {
        *reinterpret_cast<uint32_t*>(q + d) = pack_bf16(v.x, v.y);
      } else if constexpr (kv_bytes(kFormat)) {
        *reinterpret_cast<uint16_t*>(page + key_byte(slot, d)) =
            uint16_t(quantize_pair<kFormat>(v.x * byte.y, v.y * byte.y));
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

  // The values of a run, `apart` floats from one token to the next; a lane has elements l + 32 i.
  __device__ void put_values(const float* from, size_t apart, int count, uint8_t* page,
                             int slot) const {
    float v[kMostOfRun][kHeadDim / 32];
#pragma unroll
    for (int t = 0; t < kMostOfRun; ++t) {
#pragma unroll
      for (int i = 0; i < kHeadDim / 32; ++i) {
        v[t][i] = t < count ? from[t * apart + lane + 32 * i] : 0.0f;
      }
    }
    if constexpr (kv_bytes(kFormat)) {
#pragma unroll
      for (int t = 0; t < kMostOfRun; ++t) {
        float most = 0;
#pragma unroll
        for (int i = 0; i < kHeadDim / 32; ++i) most = fmaxf(most, fabsf(v[t][i]));
        most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
        const float2 byte = quantization<kFormat>(most);
#pragma unroll
        for (int i = 0; i < kHeadDim / 32; ++i) v[t][i] *= byte.y;
        if (lane == 0 && t < count) {
          *reinterpret_cast<float*>(page + value_scale_byte(slot + t, kHeadDim)) = byte.x;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 32; ++i) {
      const int d = lane + 32 * i;
      uint32_t pair[kMostOfRun / 2];
#pragma unroll
      for (int t = 0; t < kMostOfRun; t += 2) {
        pair[t / 2] = quantize_pair<kFormat>(v[t][i], v[t + 1][i]);
      }
      if (count == kMostOfRun) {
        if constexpr (kv_bytes(kFormat)) {
#pragma unroll
          for (int t = 0; t < kMostOfRun; t += 2) {
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
      for (int t = 0; t < kMostOfRun; ++t) {
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

#endif

template <int kHeadDim, KvFormat kFormat>
__global__ void __launch_bounds__(kTurnWarps * 32) turn_kernel(const __grid_constant__ RopeArgs a) {
#ifdef RIDGE_HOPPER
  constexpr int kHalf = kHeadDim / 2;
  __shared__ float2 rotation[kMostOfRun][kHalf];
  ptx::griddepcontrol_launch_dependents();
  const RopeRun run = a.runs[blockIdx.x];
  const KvSlot at = a.kv_slots[run.row];  // of the first
  for (int i = threadIdx.x; i < run.count * kHalf; i += kTurnWarps * 32) {
    float sine, cosine;
    sincosf(static_cast<float>(at.position + i / kHalf) * a.frequency[i % kHalf], &sine, &cosine);
    rotation[i / kHalf][i % kHalf] = {cosine * a.magnitude, sine * a.magnitude};
  }
  __syncthreads();
  ptx::griddepcontrol_wait();
  const int kv_head = blockIdx.y, group = a.heads / a.kv_heads, warp = threadIdx.x / 32;
  const size_t columns = size_t(a.heads + 2 * a.kv_heads) * kHeadDim;
  const float* rows = a.qkv + run.row * columns;
  const Turner<kHeadDim, kFormat> turner{a, int(threadIdx.x % 32)};
  uint8_t* page = turner.page_of(at.page, kv_head);
  if (warp == kTurnWarps - 1) {
    turner.put_values(rows + (a.heads + a.kv_heads + kv_head) * kHeadDim, columns, run.count, page,
                      at.slot);
  }
#pragma unroll 1
  for (int i = warp; i < (group + 1) * run.count; i += kTurnWarps) {
    const int token = i % run.count, of_group = i / run.count;
    const bool query = of_group < group;
    const int head = query ? kv_head * group + of_group : a.heads + kv_head;
    turner.turn(rows + token * columns + head * kHeadDim, query ? a.q_norm : a.k_norm,
                rotation[token],
                query ? a.q + (size_t(run.row + token) * a.heads + head) * kHeadDim : nullptr, page,
                at.slot + token);
  }
#endif
}

}  // namespace

template <KvFormat kFormat>
void turn_as(cudaStream_t stream, const RopeArgs& args) {
  const auto kernel = args.head_dim == 64    ? turn_kernel<64, kFormat>
                      : args.head_dim == 128 ? turn_kernel<128, kFormat>
                                             : turn_kernel<256, kFormat>;
  launch_dependent(kernel, dim3(args.count, args.kv_heads), kTurnWarps * 32, 0, stream, args);
}

void rope_and_append(cudaStream_t stream, KvFormat format, const RopeArgs& args) {
  switch (format) {
    case KvFormat::bf16:
      return turn_as<KvFormat::bf16>(stream, args);
    case KvFormat::f16:
      return turn_as<KvFormat::f16>(stream, args);
    case KvFormat::fp8:
      return turn_as<KvFormat::fp8>(stream, args);
    case KvFormat::int8:
      return turn_as<KvFormat::int8>(stream, args);
  }
}

}  // namespace ridge::cuda
