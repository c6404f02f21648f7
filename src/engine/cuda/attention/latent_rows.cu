#include "base/ptx/execution.cuh"
#include "engine/cuda/attention/latent_rows.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/layout/latent_page.h"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// 1 / root mean square of `count` numbers, by all threads of the block.
__device__ float rms_scale(const float* from, int count, float eps) {
  __shared__ float warp_sums[kWarps];
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += from[i] * from[i];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (const float each : warp_sums) sum += each;
  return rsqrtf(sum / count + eps);
}

// (cosine, sine) of pair i at a position.
__device__ float2 rotation_of(const float* frequency, float magnitude, int position, int i) {
  float sine, cosine;
  const float size = frequency[i] == 0 ? 1 : magnitude;  // 0: not rotated
  sincosf(static_cast<float>(position) * frequency[i], &sine, &cosine);
  return {cosine * size, sine * size};
}

__device__ void append_row(const AppendLatentsArgs& a) {
  ptx::griddepcontrol_launch_dependents();
  const int token = blockIdx.x, half = a.rope / 2;
  const KvSlot at = a.kv_slots[token];
  ptx::griddepcontrol_wait();
  const float* row = a.down + size_t(token) * a.stride;
  const float* latent = row + a.kv_column;
  uint16_t* to = a.kv + (size_t(at.page) * kPageTokens + at.slot) * kLatentRow;
  const float scale = rms_scale(latent, a.kv_rank, a.eps);
  for (int i = threadIdx.x; i < a.kv_rank; i += kThreads) {
    to[i] = bf16_bits(latent[i] * scale * a.kv_norm[i]);
  }
  for (int i = threadIdx.x; i < half; i += kThreads) {
    const float2 r = rotation_of(a.frequency, a.magnitude, at.position, i);
    const float x = latent[a.kv_rank + i], y = latent[a.kv_rank + half + i];
    to[kLatentRank + i] = bf16_bits(x * r.x - y * r.y);
    to[kLatentRank + half + i] = bf16_bits(y * r.x + x * r.y);
  }
  if (a.q_rank == 0) return;
  const float q_scale = rms_scale(row, a.q_rank, a.eps);
  for (int i = threadIdx.x; i < a.q_rank; i += kThreads) {
    a.q_normed[wide_at(i, token, a.padded)] = bf16_bits(row[i] * q_scale * a.q_norm[i]);
  }
}

__device__ void split_heads(const SplitQueriesArgs& a) {
  __shared__ float2 rotation[kLatentRope / 2];
  ptx::griddepcontrol_launch_dependents();
  const int token = blockIdx.x, half = a.rope / 2, each = a.nope + a.rope;
  if (threadIdx.x < half) {
    rotation[threadIdx.x] =
        rotation_of(a.frequency, a.magnitude, a.kv_slots[token].position, threadIdx.x);
  }
  __syncthreads();
  ptx::griddepcontrol_wait();
  const float* row = a.q + size_t(token) * a.stride;
  const int pairs = a.nope / 2, slots = a.heads * a.head_padded;
  for (int i = threadIdx.x; i < a.heads * pairs; i += kThreads) {
    const int head = i / pairs, k = i % pairs * 2;
    const float2 x = *reinterpret_cast<const float2*>(row + head * each + k);
    *reinterpret_cast<uint32_t*>(a.q_nope + wide_at(k, head * a.head_padded + token, slots)) =
        pack_bf16(x.x, x.y);
  }
  for (int i = threadIdx.x; i < a.heads * half; i += kThreads) {
    const int head = i / half, k = i % half;
    const float* from = row + head * each + a.nope;
    const float2 r = rotation[k];
    const float x = from[k], y = from[half + k];
    uint16_t* to = a.q_rope + (size_t(token) * a.heads + head) * kLatentRope;
    to[k] = bf16_bits(x * r.x - y * r.y);
    to[half + k] = bf16_bits(y * r.x + x * r.y);
  }
}

// One block per token, here and below.
__global__ void __launch_bounds__(kThreads)
    append_latents_kernel(const __grid_constant__ AppendLatentsArgs a) {
  append_row(a);
}
__global__ void __launch_bounds__(kThreads)
    split_queries_kernel(const __grid_constant__ SplitQueriesArgs a) {
  split_heads(a);
}
__global__ void __launch_bounds__(kThreads)
    append_and_split_kernel(const __grid_constant__ AppendLatentsArgs latents,
                            const __grid_constant__ SplitQueriesArgs queries) {
  blockIdx.y == 0 ? append_row(latents) : split_heads(queries);
}

__global__ void __launch_bounds__(kThreads)
    merge_heads_kernel(const __grid_constant__ MergeHeadsArgs a) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int token = blockIdx.x, pairs = a.value / 2;
  for (int i = threadIdx.x; i < a.heads * pairs; i += kThreads) {
    const int head = i / pairs, k = i % pairs * 2;
    const float2 x = *reinterpret_cast<const float2*>(
        a.values + (size_t(head) * a.head_padded + token) * a.value + k);
    *reinterpret_cast<uint32_t*>(a.out + wide_at(head * a.value + k, token, a.padded)) =
        pack_bf16(x.x, x.y);
  }
}

}  // namespace

void append_latents(cudaStream_t stream, int tokens, const AppendLatentsArgs& args) {
  launch_dependent(append_latents_kernel, dim3(tokens), kThreads, 0, stream, args);
}
void split_queries(cudaStream_t stream, int tokens, const SplitQueriesArgs& args) {
  launch_dependent(split_queries_kernel, dim3(tokens), kThreads, 0, stream, args);
}
void append_and_split(cudaStream_t stream, int tokens, const AppendLatentsArgs& latents,
                      const SplitQueriesArgs& queries) {
  launch_dependent(append_and_split_kernel, dim3(tokens, 2), kThreads, 0, stream, latents, queries);
}
void merge_heads(cudaStream_t stream, int tokens, const MergeHeadsArgs& args) {
  launch_dependent(merge_heads_kernel, dim3(tokens), kThreads, 0, stream, args);
}

}  // namespace ridge::cuda
