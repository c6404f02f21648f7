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

__global__ void __launch_bounds__(kTurnWarps * 32) turn_kernel(const __grid_constant__ TurnArgs a) {
  let_next_begin();
  after_previous();
  const int heads = a.heads + 2 * a.kv_heads, half = a.head_dim / 2, token = blockIdx.x;
  const int head = blockIdx.y * kTurnWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (head >= heads) return;
  const float* from = a.qkv + (size_t(token) * heads + head) * a.head_dim;
  const TokenAt at = a.at[token];
  const int kv_head = (head - a.heads) % a.kv_heads;
  uint16_t* page = a.kv + (size_t(at.page) * a.kv_heads + kv_head) * page_elements(a.head_dim);
  if (head >= a.heads + a.kv_heads) {
    for (int d = lane; d < a.head_dim; d += 32) {
      page[value_at(at.slot, d, a.head_dim)] = bf16_bits(from[d]);
    }
    return;
  }
  const bool query = head < a.heads;
  const float* norm = query ? a.q_norm : a.k_norm;
  float scale = 1;
  if (norm) {
    float sum = 0;
    for (int d = lane; d < a.head_dim; d += 32) sum += from[d] * from[d];
    for (int across = 16; across; across /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
    scale = rsqrtf(sum / a.head_dim + a.eps);
  }
  for (int i = lane * 2; i < half; i += 64) {
    float2 x = *reinterpret_cast<const float2*>(from + i);
    float2 y = *reinterpret_cast<const float2*>(from + half + i);
    const float2 frequency = *reinterpret_cast<const float2*>(a.frequency + i);
    if (norm) {
      const float2 low = *reinterpret_cast<const float2*>(norm + i);
      const float2 high = *reinterpret_cast<const float2*>(norm + half + i);
      x.x *= scale * low.x, x.y *= scale * low.y, y.x *= scale * high.x, y.y *= scale * high.y;
    }
    float sine[2], cosine[2];
    sincosf(static_cast<float>(at.position) * frequency.x, &sine[0], &cosine[0]);
    sincosf(static_cast<float>(at.position) * frequency.y, &sine[1], &cosine[1]);
    for (int n = 0; n < 2; ++n) sine[n] *= a.magnitude, cosine[n] *= a.magnitude;
    const uint32_t first =
        pack_bf16(x.x * cosine[0] - y.x * sine[0], x.y * cosine[1] - y.y * sine[1]);
    const uint32_t second =
        pack_bf16(y.x * cosine[0] + x.x * sine[0], y.y * cosine[1] + x.y * sine[1]);
    uint16_t* to = query ? a.q + (size_t(token) * a.heads + head) * a.head_dim + i
                         : page + key_at(at.slot, i, a.head_dim);
    const int apart = query ? half : key_at(0, half, a.head_dim);
    *reinterpret_cast<uint32_t*>(to) = first;
    *reinterpret_cast<uint32_t*>(to + apart) = second;
  }
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

void turn_and_cache(cudaStream_t stream, const TurnArgs& args) {
  const int heads = args.heads + 2 * args.kv_heads;
  launch_dependent(turn_kernel, dim3(args.count, (heads + kTurnWarps - 1) / kTurnWarps),
                   kTurnWarps * 32, 0, stream, args);
}

void choose_likeliest(cudaStream_t stream, const float* logits, int rows, int vocab,
                      unsigned long long* best, int* chosen) {
  launch_dependent(likeliest_kernel, dim3(rows, kParts), kThreads, 0, stream, logits, vocab, best);
  launch_dependent(choose_kernel, dim3(1), 256, 0, stream, best, rows, chosen);
}

}  // namespace ridge::cuda
