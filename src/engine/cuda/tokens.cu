#include "engine/cuda/attention/page_attention.cuh"
#include "engine/cuda/device.cuh"
#include "engine/cuda/ptx/mma.cuh"
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
  const int fours = a.hidden / 4;
  for (int i = threadIdx.x * 8; i < fours; i += kThreads * 8) {
    expect_line(a.norm + i * 4);
    if (a.added_norm) expect_line(a.added_norm + i * 4);
  }
  after_previous();
  const int row = a.rows ? a.rows[blockIdx.x] : blockIdx.x;
  float* residual = a.residual + size_t(row) * a.hidden;
  if (a.added || a.chosen.rows) {
    const auto added = [&](int i) {
      if (a.added) return four(a.added + size_t(row) * a.hidden, i);
      float4 sum = {0, 0, 0, 0};
      for (int k = 0; k < a.chosen.top_k; ++k) {
        const int choice = row * a.chosen.top_k + k;
        const float4 y = four(a.chosen.rows + size_t(a.chosen.slot[choice]) * a.hidden, i);
        const float w = a.chosen.weight[choice];
        sum = {sum.x + w * y.x, sum.y + w * y.y, sum.z + w * y.z, sum.w + w * y.w};
      }
      return sum;
    };
    float scale = 1;
    if (a.added_norm) {
      float sum = 0;
      for (int i = threadIdx.x; i < fours; i += kThreads) sum += squares(added(i));
      scale = rsqrtf(sum_of_block(sum) / a.hidden + a.eps);
    }
    for (int i = threadIdx.x; i < fours; i += kThreads) {
      const float4 y = added(i), one = {1, 1, 1, 1}, w = a.added_norm ? four(a.added_norm, i) : one;
      float4 r = four(residual, i);
      r.x += y.x * scale * w.x, r.y += y.y * scale * w.y;
      r.z += y.z * scale * w.z, r.w += y.w * scale * w.w;
      reinterpret_cast<float4*>(residual)[i] = r;  // each thread reads back what it wrote
    }
  }
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

// A block a run and KV head: its tokens' queries and keys by warps in turn, the values by one.
constexpr int kTurnWarps = 8;

#ifdef RIDGE_HOPPER

constexpr int kMostOfRun = 8;

template <int kHeadDim, KvFormat kFormat>
struct Turner {
  static constexpr int kHalf = kHeadDim / 2, kPairs = (kHalf + 63) / 64;
  const TurnArgs& a;
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
      byte = byte_scale<kFormat>(most);
      if (lane == 0 && !q) {
        *reinterpret_cast<float*>(page + key_scale_byte(slot, kHeadDim)) = byte.x;
      }
    }
    const auto store = [&](int d, float2 v) {
      if (q) {
        *reinterpret_cast<uint32_t*>(q + d) = pack_bf16(v.x, v.y);
      } else if constexpr (kv_bytes(kFormat)) {
        *reinterpret_cast<uint16_t*>(page + key_byte(slot, d)) =
            uint16_t(cached_pair<kFormat>(v.x * byte.y, v.y * byte.y));
      } else {
        *reinterpret_cast<uint32_t*>(page + 2 * key_at(slot, d, kHeadDim)) =
            cached_pair<kFormat>(v.x, v.y);
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
        const float2 byte = byte_scale<kFormat>(most);
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
        pair[t / 2] = cached_pair<kFormat>(v[t][i], v[t + 1][i]);
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
__global__ void __launch_bounds__(kTurnWarps * 32) turn_kernel(const __grid_constant__ TurnArgs a) {
#ifdef RIDGE_HOPPER
  constexpr int kHalf = kHeadDim / 2;
  __shared__ float2 rotation[kMostOfRun][kHalf];
  let_next_begin();
  const TurnRun run = a.runs[blockIdx.x];
  const TokenAt at = a.at[run.row];  // of the first
  for (int i = threadIdx.x; i < run.count * kHalf; i += kTurnWarps * 32) {
    float sine, cosine;
    sincosf(static_cast<float>(at.position + i / kHalf) * a.frequency[i % kHalf], &sine, &cosine);
    rotation[i / kHalf][i % kHalf] = {cosine * a.magnitude, sine * a.magnitude};
  }
  __syncthreads();
  after_previous();
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
  static const bool ready = (share_like_products(normalize_kernel), true);
  static_cast<void>(ready);
  launch_dependent(normalize_kernel, dim3(args.count), kThreads, 0, stream, args);
}

template <KvFormat kFormat>
void turn_as(cudaStream_t stream, const TurnArgs& args) {
  const auto kernel = args.head_dim == 64    ? turn_kernel<64, kFormat>
                      : args.head_dim == 128 ? turn_kernel<128, kFormat>
                                             : turn_kernel<256, kFormat>;
  launch_dependent(kernel, dim3(args.count, args.kv_heads), kTurnWarps * 32, 0, stream, args);
}

void turn_and_cache(cudaStream_t stream, KvFormat format, const TurnArgs& args) {
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
