#include "base/ptx/async_copy.cuh"
#include "base/ptx/execution.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/elementwise/combined.cuh"
#include "engine/cuda/elementwise/rms_norm.cuh"
#include "engine/cuda/layout/kv_page.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

__device__ float block_sum(float value) {
  __shared__ float warp_sums[kWarps];
  for (int offset = 16; offset; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int w = 0; w < kWarps; ++w) value += warp_sums[w];
  return value;
}

__device__ float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

// Four columns of what is added to a row of the residual.
template <int kInFlight>
__device__ __forceinline__ float4 added_float4(const RmsNormArgs& a, int row, int i) {
  if (a.added) return load_float4(a.added + size_t(row) * a.hidden, i);
  return combined_float4<kInFlight>(a.experts, row, a.hidden, i);
}

// One block per token. A row is read once, into registers: thread t has the columns 4 (t + 512 g),
// g < kGroups, and following. The weights of the norms are loaded before the previous kernel ends.
template <int kGroups>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const __grid_constant__ RmsNormArgs a) {
  ptx::griddepcontrol_launch_dependents();
  const int fours = a.hidden / 4;
  float4 v[kGroups] = {}, weight[kGroups] = {}, added_weight[kGroups];
  const auto for_all = [&](auto each) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int i = int(threadIdx.x) + g * kThreads;
      if (i < fours) each(g, i);
    }
  };
  const auto rms_scale = [&] {
    float sum = 0;
#pragma unroll
    for (const float4& each : v) sum += squares(each);
    return rsqrtf(block_sum(sum) / a.hidden + a.eps);
  };
  for_all([&](int g, int i) {
    weight[g] = load_float4(a.norm, i);
    added_weight[g] = a.added_norm ? load_float4(a.added_norm, i) : float4{1, 1, 1, 1};
  });
  ptx::griddepcontrol_wait();
  const int row = a.rows ? a.rows[blockIdx.x] : blockIdx.x;
  float* const residual = a.residual + size_t(row) * a.hidden;
  float4 before[kGroups];
  for_all([&](int g, int i) { before[g] = load_float4(residual, i); });
  if (a.added || a.experts.rows) {
    constexpr int kInFlight = kGroups > 4 ? 2 : kGroups > 2 ? 4 : 8;
    for_all([&](int g, int i) { v[g] = added_float4<kInFlight>(a, row, i); });
    const float scale = a.added_norm ? rms_scale() : 1;
    for_all([&](int g, int i) {
      const float4 r = before[g], w = added_weight[g];
      v[g] = {r.x + v[g].x * scale * w.x, r.y + v[g].y * scale * w.y, r.z + v[g].z * scale * w.z,
              r.w + v[g].w * scale * w.w};
      reinterpret_cast<float4*>(residual)[i] = v[g];
    });
  } else {
    for_all([&](int g, int) { v[g] = before[g]; });
  }
  const float scale = rms_scale();
  for_all([&](int g, int i) {
    const float4 r = v[g], w = weight[g];
    const uint2 packed = {pack_bf16(r.x * scale * w.x, r.y * scale * w.y),
                          pack_bf16(r.z * scale * w.z, r.w * scale * w.w)};
    *reinterpret_cast<uint2*>(a.out + wide_at(i * 4, blockIdx.x, a.padded)) = packed;
  });
}

// Four tokens of a core matrix per block, for steps of many tokens: neighbouring lanes have the
// same 8 columns of the four, so that they write 64 contiguous bytes. (A block of one token writes
// 16 bytes of every 128, in halves of a sector.) A row is read once, into registers: thread t of a
// token's 128 has the columns 8 (t + 128 g), g < kGroups, and following.
constexpr int kTileTokens = 4, kTokenThreads = kThreads / kTileTokens;

// value combined over the threads of each token, in a fixed order.
template <typename Combine>
__device__ float reduce_token(float value, int token, const Combine& combine) {
  __shared__ float of_warp[kWarps][kTileTokens];
  for (int offset = 16; offset >= kTileTokens; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  __syncthreads();  // an earlier result has been read
  if (threadIdx.x % 32 < kTileTokens) of_warp[threadIdx.x / 32][token] = value;
  __syncthreads();
  value = 0;
  for (int w = 0; w < kWarps; ++w) value = combine(value, of_warp[w][token]);
  return value;
}
__device__ float token_sum(float value, int token) {
  return reduce_token(value, token, [](float a, float b) { return a + b; });
}
__device__ float token_max(float value, int token) {
  return reduce_token(value, token, [](float a, float b) { return fmaxf(a, b); });
}

__device__ float largest(float4 v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// Eight columns of a token as E4M3. In fp8_at() the pairs of columns 0 to 7 alternate with those of
// 8 to 15, which the thread of lane ^ kTileTokens has: each writes half of the 16 bytes.
__device__ void store_fp8(const RmsNormArgs& a, int group, int token, float4 low, float4 high,
                          float factor, bool valid) {
  const auto pair = [&](float x, float y) {
    return quantize_pair<KvFormat::fp8>(x * factor, y * factor);
  };
  const uint32_t first = pair(low.x, low.y) | pair(low.z, low.w) << 16;
  const uint32_t second = pair(high.x, high.y) | pair(high.z, high.w) << 16;
  const bool upper = group % 2;  // columns 8 to 15
  const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? first : second, kTileTokens);
  const uint32_t from_low = upper ? other : first, from_high = upper ? second : other;
  if (!valid) return;
  *reinterpret_cast<uint2*>(a.fp8_out + fp8_at(group / 2 * 16, token, a.padded) + upper * 8) = {
      __byte_perm(from_low, from_high, 0x5410), __byte_perm(from_low, from_high, 0x7632)};
}

template <int kGroups>
__global__ void __launch_bounds__(kThreads, kGroups > 4 ? 1 : 2)
    rms_norm_tile_kernel(const __grid_constant__ RmsNormArgs a) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int token = threadIdx.x % kTileTokens, thread = threadIdx.x / kTileTokens;
  const int at = blockIdx.x * kTileTokens + token;
  const int groups = at < a.count ? a.hidden / 8 : 0;  // of this token
  const int row = a.rows && groups ? a.rows[at] : at;
  float4* residual = reinterpret_cast<float4*>(a.residual + size_t(row) * a.hidden);
  float4 v[kGroups][2] = {};
  const auto for_all = [&](auto each) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int i = thread + g * kTokenThreads;
      if (i < groups) each(v[g][0], 2 * i), each(v[g][1], 2 * i + 1);
    }
  };
  const auto rms_scale = [&] {
    float sum = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) sum += squares(v[g][0]) + squares(v[g][1]);
    return rsqrtf(token_sum(sum, token) / a.hidden + a.eps);
  };
  if (a.added || a.experts.rows) {
    for_all([&](float4& x, int i) { x = added_float4<1>(a, row, i); });
    const float scale = a.added_norm ? rms_scale() : 1;
    for_all([&](float4& x, int i) {
      const float4 one = {1, 1, 1, 1}, w = a.added_norm ? load_float4(a.added_norm, i) : one;
      const float4 r = residual[i];
      x = {r.x + x.x * scale * w.x, r.y + x.y * scale * w.y, r.z + x.z * scale * w.z,
           r.w + x.w * scale * w.w};
      residual[i] = x;
    });
  } else {
    for_all([&](float4& x, int i) { x = residual[i]; });
  }
  const float scale = rms_scale();
  for_all([&](float4& x, int i) {
    const float4 w = load_float4(a.norm, i);
    x = {x.x * scale * w.x, x.y * scale * w.y, x.z * scale * w.z, x.w * scale * w.w};
  });
  if (a.fp8_out) {
    float magnitude = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      magnitude = fmaxf(magnitude, fmaxf(largest(v[g][0]), largest(v[g][1])));
    }
    const Quantization quantized = quantization<KvFormat::fp8>(token_max(magnitude, token));
    if (thread == 0 && groups) a.token_scale[at] = quantized.scale;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int i = thread + g * kTokenThreads;
      store_fp8(a, i, at, v[g][0], v[g][1], quantized.factor, i < groups);
    }
    return;
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int i = thread + g * kTokenThreads;
    if (i >= groups) continue;
    const float4 low = v[g][0], high = v[g][1];
    *reinterpret_cast<uint4*>(a.out + wide_at(i * 8, at, a.padded)) = {
        pack_bf16(low.x, low.y), pack_bf16(low.z, low.w), pack_bf16(high.x, high.y),
        pack_bf16(high.z, high.w)};
  }
}

template <int kGroups>
void launch_rows(cudaStream_t stream, const RmsNormArgs& args) {
  [[maybe_unused]] static const bool ready = prefer_max_shared_memory(rms_norm_kernel<kGroups>);
  launch_dependent(rms_norm_kernel<kGroups>, dim3(args.count), kThreads, 0, stream, args);
}

template <int kGroups>
void launch_tiles(cudaStream_t stream, const RmsNormArgs& args) {
  [[maybe_unused]] static const bool ready =
      prefer_max_shared_memory(rms_norm_tile_kernel<kGroups>);
  launch_dependent(rms_norm_tile_kernel<kGroups>,
                   dim3((args.count + kTileTokens - 1) / kTileTokens), kThreads, 0, stream, args);
}

}  // namespace

void rms_norm(cudaStream_t stream, const RmsNormArgs& args) {
  // Below, a block for each token fills more SMs. The two kernels add in different orders, so the
  // limit lies between two token tiles of the GEMMs (Linear::tile_tokens): within a tile, what
  // stands beside a token changes no bit of it.
  constexpr int kManyTokens = 65;
  const int groups = (args.hidden / 8 + kTokenThreads - 1) / kTokenThreads;
  if (args.count >= kManyTokens && args.hidden % 8 == 0 && args.hidden <= 8 * 8 * kTokenThreads) {
    if (groups <= 2) return launch_tiles<2>(stream, args);
    if (groups <= 4) return launch_tiles<4>(stream, args);
    return launch_tiles<8>(stream, args);
  }
  const int fours = (args.hidden / 4 + kThreads - 1) / kThreads;
  if (fours <= 1) return launch_rows<1>(stream, args);
  if (fours <= 2) return launch_rows<2>(stream, args);
  if (fours <= 4) return launch_rows<4>(stream, args);
  static_assert(kMaxNormColumns == 4 * kThreads * 8);  // check_shape() refuses more
  launch_rows<8>(stream, args);
}

}  // namespace ridge::cuda
