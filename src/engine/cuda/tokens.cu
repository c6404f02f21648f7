#include "engine/cuda/attend.cuh"
#include "engine/cuda/device.cuh"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/scalar.cuh"
#include "engine/cuda/tokens.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

__global__ void embed_kernel(const int* tokens, const uint16_t* table, int hidden, float scale,
                             float* residual) {
  after_previous();
  let_next_begin();
  const uint16_t* from = table + size_t(tokens[blockIdx.x]) * hidden;
  float* to = residual + size_t(blockIdx.x) * hidden;
  for (int c = threadIdx.x; c < hidden; c += blockDim.x) to[c] = bf16_value(from[c]) * scale;
}

__device__ float sum_of_block(float value) {
  __shared__ float parts[kWarps];
  for (int across = 16; across; across /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, across);
  }
  __syncthreads();  // the parts of an earlier sum are read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int w = 0; w < kWarps; ++w) value += parts[w];
  return value;
}

__device__ float4 four(const float* from, int i) {
  return reinterpret_cast<const float4*>(from)[i];
}
__device__ float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

// A block a token. Rows are read twice; the second time from L1.
__global__ void __launch_bounds__(kThreads) normalize_kernel(const __grid_constant__ NormArgs a) {
  let_next_begin();
  after_previous();
  const int row = a.rows ? a.rows[blockIdx.x] : blockIdx.x, fours = a.hidden / 4;
  float* residual = a.residual + size_t(row) * a.hidden;
  if (a.added) {
    const float* added = a.added + size_t(row) * a.hidden;
    float sum = 0;
    for (int i = threadIdx.x; i < fours; i += kThreads) sum += squares(four(added, i));
    const float scale = rsqrtf(sum_of_block(sum) / a.hidden + a.eps);
    for (int i = threadIdx.x; i < fours; i += kThreads) {
      const float4 y = four(added, i), w = four(a.added_norm, i);
      float4 r = four(residual, i);
      r.x += y.x * scale * w.x, r.y += y.y * scale * w.y;
      r.z += y.z * scale * w.z, r.w += y.w * scale * w.w;
      reinterpret_cast<float4*>(residual)[i] = r;  // each thread reads back what it wrote
    }
  }
  if (!a.norm) return;
  float sum = 0;
  for (int i = threadIdx.x; i < fours; i += kThreads) sum += squares(four(residual, i));
  const float scale = rsqrtf(sum_of_block(sum) / a.hidden + a.eps);
  for (int i = threadIdx.x; i < fours; i += kThreads) {
    const float4 r = four(residual, i), w = four(a.norm, i);
    const uint2 packed = {pack_bf16(r.x * scale * w.x, r.y * scale * w.y),
                          pack_bf16(r.z * scale * w.z, r.w * scale * w.w)};
    *reinterpret_cast<uint2*>(a.out + wide_at(i * 4, blockIdx.x, a.padded)) = packed;
  }
}

// A warp a token and head; a lane has pairs 2 l + 64 n and the one after.
constexpr int kTurnWarps = 8;

template <KvFormat kFormat>
__global__ void __launch_bounds__(kTurnWarps * 32) turn_kernel(const __grid_constant__ TurnArgs a) {
#ifdef RIDGE_HOPPER
  let_next_begin();
  const int heads = a.heads + 2 * a.kv_heads, half = a.head_dim / 2, token = a.rows[blockIdx.x];
  const int head = blockIdx.y * kTurnWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  after_previous();
  if (head >= heads) return;
  const float* from = a.qkv + (size_t(token) * heads + head) * a.head_dim;
  const TokenAt at = a.at[token];
  const int kv_head = (head - a.heads) % a.kv_heads;
  uint8_t* page = a.kv + (size_t(at.page) * a.kv_heads + kv_head) * page_bytes(kFormat, a.head_dim);
  const bool query = head < a.heads, value = head >= a.heads + a.kv_heads;
  // Elements of both halves; what lies behind the end is zero.
  float2 x[2] = {}, y[2] = {};
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int i = lane * 2 + n * 64;
    if (i >= half) continue;
    x[n] = *reinterpret_cast<const float2*>(from + i);
    y[n] = *reinterpret_cast<const float2*>(from + half + i);
  }
  const float* norm = value ? nullptr : query ? a.q_norm : a.k_norm;
  float scale = 1;
  if (norm) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      sum += x[n].x * x[n].x + x[n].y * x[n].y + y[n].x * y[n].x + y[n].y * y[n].y;
    }
    for (int across = 16; across; across /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
    scale = rsqrtf(sum / a.head_dim + a.eps);
  }
  float most = 0;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int i = lane * 2 + n * 64;
    if (i >= half) continue;
    if (norm) {
      const float2 low = *reinterpret_cast<const float2*>(norm + i);
      const float2 high = *reinterpret_cast<const float2*>(norm + half + i);
      x[n] = {x[n].x * (scale * low.x), x[n].y * (scale * low.y)};
      y[n] = {y[n].x * (scale * high.x), y[n].y * (scale * high.y)};
    }
    if (!value) {
      const float2 frequency = *reinterpret_cast<const float2*>(a.frequency + i);
      float sine[2], cosine[2];
      sincosf(static_cast<float>(at.position) * frequency.x, &sine[0], &cosine[0]);
      sincosf(static_cast<float>(at.position) * frequency.y, &sine[1], &cosine[1]);
      for (int e = 0; e < 2; ++e) sine[e] *= a.magnitude, cosine[e] *= a.magnitude;
      const float2 u = x[n], v = y[n];
      x[n] = {u.x * cosine[0] - v.x * sine[0], u.y * cosine[1] - v.y * sine[1]};
      y[n] = {v.x * cosine[0] + u.x * sine[0], v.y * cosine[1] + u.y * sine[1]};
    }
    most = fmaxf(fmaxf(most, fmaxf(fabsf(x[n].x), fabsf(x[n].y))),
                 fmaxf(fabsf(y[n].x), fabsf(y[n].y)));
  }
  float2 byte = {1, 1};
  if constexpr (kv_bytes(kFormat)) {
    most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
    byte = byte_scale<kFormat>(most);
    if (lane == 0 && !query) {
      *reinterpret_cast<float*>(page + (value ? value_scale_byte(at.slot, a.head_dim)
                                              : key_scale_byte(at.slot, a.head_dim))) = byte.x;
    }
  }
  const auto store = [&](int d, float2 v) {
    if (query) {
      *reinterpret_cast<uint32_t*>(a.q + (size_t(token) * a.heads + head) * a.head_dim + d) =
          pack_bf16(v.x, v.y);
      return;
    }
    const uint32_t pair = cached_pair<kFormat>(v.x * byte.y, v.y * byte.y);
    if constexpr (kv_bytes(kFormat)) {
      if (value) {
        page[value_byte(at.slot, d, a.head_dim)] = uint8_t(pair);
        page[value_byte(at.slot, d + 1, a.head_dim)] = uint8_t(pair >> 8);
      } else {
        *reinterpret_cast<uint16_t*>(page + key_byte(at.slot, d)) = uint16_t(pair);
      }
    } else {
      uint16_t* elements = reinterpret_cast<uint16_t*>(page);
      if (value) {
        elements[value_at(at.slot, d, a.head_dim)] = uint16_t(pair);
        elements[value_at(at.slot, d + 1, a.head_dim)] = uint16_t(pair >> 16);
      } else {
        *reinterpret_cast<uint32_t*>(elements + key_at(at.slot, d, a.head_dim)) = pair;
      }
    }
  };
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int i = lane * 2 + n * 64;
    if (i >= half) continue;
    store(i, x[n]);
    store(half + i, y[n]);
  }
#endif
}

// A block a page and head; a thread takes 8 elements of a key, or of 8 tokens' values.
constexpr int kUnpackThreads = 128;

template <KvFormat kFormat>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_kernel(const __grid_constant__ UnpackArgs a) {
#ifdef RIDGE_HOPPER
  let_next_begin();
  const size_t number = a.pages[a.from[blockIdx.x]];
  const uint8_t* page = a.kv + (number * a.kv_heads + blockIdx.y) * page_bytes(kFormat, a.head_dim);
  uint4* to = reinterpret_cast<uint4*>(a.to + (size_t(blockIdx.x) * a.kv_heads + blockIdx.y) *
                                                  page_elements(a.head_dim));
  after_previous();
  const auto scaled = [](uint32_t halves, float low, float high) {
    const float2 v = __half22float2(*reinterpret_cast<const __half2*>(&halves));
    return pack_bf16(v.x * low, v.y * high);
  };
  const auto pair_at = [&](int byte) {
    uint32_t bits = *reinterpret_cast<const uint16_t*>(page + byte);
    if constexpr (kFormat == KvFormat::int8) bits ^= 0x8080u;
    return byte_pair<kFormat, 0>(bits);
  };
  const int rows = 2 * a.head_dim;  // of 8 elements; as many of K as of V
#pragma unroll 1
  for (int i = threadIdx.x; i < 2 * rows; i += kUnpackThreads) {
    const bool value = i >= rows;
    uint32_t pairs[4];
    if constexpr (kFormat == KvFormat::f16) {
      const uint4 v = reinterpret_cast<const uint4*>(page)[i];
      pairs[0] = scaled(v.x, 1, 1), pairs[1] = scaled(v.y, 1, 1);
      pairs[2] = scaled(v.z, 1, 1), pairs[3] = scaled(v.w, 1, 1);
    } else if (!value) {  // key_at
      const int token = i / a.head_dim * 8 + i % 8, d = i % a.head_dim / 8 * 8;
      const float scale = *reinterpret_cast<const float*>(page + key_scale_byte(token, a.head_dim));
#pragma unroll
      for (int k = 0; k < 4; ++k)
        pairs[k] = scaled(pair_at(key_byte(token, d + k * 2)), scale, scale);
    } else {  // value_at
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
#endif
}

constexpr int kParts = 8;  // blocks of a row

__global__ void __launch_bounds__(kThreads)
    likeliest_kernel(const float* logits, int vocab, unsigned long long* best) {
  let_next_begin();
  after_previous();
  const float* row = logits + size_t(blockIdx.x) * vocab;
  unsigned long long key = 0;
  for (int i = blockIdx.y * kThreads + threadIdx.x; i < vocab; i += kParts * kThreads) {
    key = max(key, key_of(row[i], i));
  }
  for (int across = 16; across; across /= 2) {
    key = max(key, __shfl_xor_sync(0xffffffffu, key, across));
  }
  if (threadIdx.x % 32 == 0) atomicMax(best + blockIdx.x, key);
}

__global__ void choose_kernel(unsigned long long* best, int rows, int* chosen) {
  let_next_begin();
  after_previous();
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    chosen[row] = index_of(best[row]);
    best[row] = 0;  // for the next time
  }
}

}  // namespace

void embed(cudaStream_t stream, const int* tokens, int count, const uint16_t* table, int hidden,
           float scale, float* residual) {
  launch_dependent(embed_kernel, dim3(count), 256, 0, stream, tokens, table, hidden, scale,
                   residual);
}

void normalize(cudaStream_t stream, const NormArgs& args) {
  launch_dependent(normalize_kernel, dim3(args.count), kThreads, 0, stream, args);
}

void turn_and_cache(cudaStream_t stream, KvFormat format, const TurnArgs& args) {
  constexpr void (*kKernels[])(TurnArgs) = {turn_kernel<KvFormat::bf16>, turn_kernel<KvFormat::f16>,
                                            turn_kernel<KvFormat::fp8>,
                                            turn_kernel<KvFormat::int8>};
  const int heads = args.heads + 2 * args.kv_heads;
  launch_dependent(kKernels[int(format)], dim3(args.count, (heads + kTurnWarps - 1) / kTurnWarps),
                   kTurnWarps * 32, 0, stream, args);
}

void unpack_pages(cudaStream_t stream, KvFormat format, const UnpackArgs& args) {
  const auto kernel = format == KvFormat::f16   ? unpack_kernel<KvFormat::f16>
                      : format == KvFormat::fp8 ? unpack_kernel<KvFormat::fp8>
                                                : unpack_kernel<KvFormat::int8>;
  launch_dependent(kernel, dim3(args.count, args.kv_heads), kUnpackThreads, 0, stream, args);
}

void choose_likeliest(cudaStream_t stream, const float* logits, int rows, int vocab,
                      unsigned long long* best, int* chosen) {
  launch_dependent(likeliest_kernel, dim3(rows, kParts), kThreads, 0, stream, logits, vocab, best);
  launch_dependent(choose_kernel, dim3(1), 256, 0, stream, best, rows, chosen);
}

}  // namespace ridge::cuda
