// Routing of tokens to experts. Two ways with the same results:
//   route_tokens        three kernels: top k per token, assignments per expert, slots
//   route_tokens_fused  one kernel for small steps: RMSNorm, router GEMM, top k, slots
#include "base/ptx/async_copy.cuh"
#include "base/ptx/execution.cuh"
#include "base/ptx/memory_order.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/elementwise/combined.cuh"
#include "engine/cuda/moe/assign_slots.cuh"
#include "engine/cuda/moe/experts.cuh"
#include "engine/cuda/moe/top_k.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256;

// One warp per token.
template <bool kByRules>
__global__ void top_k_kernel(const __grid_constant__ ExpertRouting r) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int token = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (token < r.tokens) select_experts<kByRules>(r, token, threadIdx.x % 32);
}

__device__ bool is_here(const ExpertRouting& r, int expert) {
  return expert >= r.first && expert < r.first + r.here;
}

// One block per expert: the number of its assignments on this rank.
__global__ void count_kernel(const __grid_constant__ ExpertRouting r) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  int count = 0;
  for (int i = threadIdx.x; i < r.tokens * r.top_k; i += kThreads) {
    count += r.expert[i] == static_cast<int>(blockIdx.x);
  }
  count = __reduce_add_sync(0xffffffffu, count);
  __shared__ int warp_counts[kThreads / 32];
  if (threadIdx.x % 32 == 0) warp_counts[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x > 0) return;
  int sum = 0;
  for (const int warp_count : warp_counts) sum += warp_count;
  r.count[blockIdx.x] = is_here(r, int(blockIdx.x)) ? sum : 0;
}

// One block per expert: its slots begin at the tile where the experts before it end. They hold its
// tokens in order.
__global__ void slot_kernel(const __grid_constant__ ExpertRouting r) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int first_tile = 0;
  for (int e = 0; e < expert; ++e) first_tile += (r.count[e] + r.tile - 1) / r.tile;
  const int tiles = (r.count[expert] + r.tile - 1) / r.tile;
  for (int i = threadIdx.x; i < tiles; i += kThreads)
    r.tile_matrix[first_tile + i] = expert - r.first;
  if (expert == r.experts - 1 && threadIdx.x == 0) *r.tile_count = first_tile + tiles;
  if (!is_here(r, expert)) {
    for (int i = threadIdx.x; i < r.tokens * r.top_k; i += kThreads) {
      if (r.expert[i] == expert) r.slot[i] = -1;
    }
    return;
  }
  __shared__ int warp_counts[kThreads / 32];
  int next = first_tile * r.tile;
  for (int from = 0; from < r.tokens * r.top_k; from += kThreads) {
    const int i = from + threadIdx.x;
    const bool assigned = i < r.tokens * r.top_k && r.expert[i] == expert;
    const unsigned lanes = __ballot_sync(0xffffffffu, assigned);
    __syncthreads();
    if (lane == 0) warp_counts[warp] = __popc(lanes);
    __syncthreads();
    int before = __popc(lanes & ((1u << lane) - 1)), sum = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) before += warp_counts[w];
      sum += warp_counts[w];
    }
    if (assigned) r.slot[i] = next + before, r.source[next + before] = i / r.top_k;
    next += sum;
  }
  for (int i = next + threadIdx.x; i < (first_tile + tiles) * r.tile; i += kThreads) {
    r.source[i] = -1;
  }
}

// One block per token.
__global__ void combine_kernel(const ExpertOutputs outputs, int hidden, float* to) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  for (int i = threadIdx.x; i < hidden / 4; i += kThreads) {
    const size_t at = size_t(blockIdx.x) * (hidden / 4) + i;
    reinterpret_cast<float4*>(to)[at] = combined_float4<1>(outputs, blockIdx.x, hidden, i);
  }
}

__global__ void gather_kernel(const __grid_constant__ ExpertRouting r, const uint16_t* from,
                              int padded, uint16_t* to, int slots, int columns) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int used = *r.tile_count * r.tile;
  for (int slot = blockIdx.x; slot < used; slot += gridDim.x) {
    const int token = r.source[slot];
    if (token < 0) continue;  // padding: its results are not read
    for (int k = threadIdx.x * 8; k < columns; k += kThreads * 8) {
      *reinterpret_cast<uint4*>(to + wide_at(k, slot, slots)) =
          *reinterpret_cast<const uint4*>(from + wide_at(k, token, padded));
    }
  }
}

// The same with the token times its weight. The wait comes before the release of the next kernel,
// which may then read the lists early (SkinnyGemmArgs::gathers).
__global__ void gather_scaled_kernel(const __grid_constant__ ExpertRouting r, const uint16_t* from,
                                     int padded, uint16_t* to, int slots, int columns) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int used = *r.tile_count * r.tile;
  for (int slot = blockIdx.x; slot < used; slot += gridDim.x) {
    const int token = r.source[slot];
    if (token < 0) continue;
    int k = 0;
    while (k + 1 < r.top_k && r.slot[token * r.top_k + k] != slot) ++k;
    const float weight = r.input_weight[token * r.top_k + k];
    for (int c = threadIdx.x * 2; c < columns; c += kThreads * 2) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(from + wide_at(c, token, padded));
      const float2 x = __bfloat1622float2(pair_of(pair));
      *reinterpret_cast<uint32_t*>(to + wide_at(c, slot, slots)) =
          pack_bf16(x.x * weight, x.y * weight);
    }
  }
}

// The fused kernel. A block of the grid has 16 experts (x) and 8 tokens (y), and 16 warps:
//   norm     all warps share the tokens' rows; the normed tokens stay in shared memory as B
//   fragments router   mma.m16n8k16, the warps split K; their sums are added in shared memory top k
//   by the last block to arrive at a global counter, for the whole step: a warp for each
//            token
//   slots    by the same block: one thread per assignment, then one per expert
//
//   dynamic shared memory: x[k / 8][8 tokens][k % 8] bf16, 16 bytes per column
constexpr int kFusedWarps = 16, kFusedThreads = kFusedWarps * 32;
static_assert(kFusedThreads == kSlotThreads);

// Adds up the values: the upper half to the lower half, until one is left.
template <int kCount>
__device__ __forceinline__ float tree_sum(float (&values)[kCount]) {
#pragma unroll
  for (int parts = 2; parts <= kCount; parts *= 2) {
    const int half = kCount / parts;
#pragma unroll
    for (int i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

// RMSNorm of this block's tokens into `x`. A row is cut into 16 segments of whole warps' loads. The
// warps of a token have every kWarps-th of them: one warp one segment of a single token, or eight
// segments of one of eight tokens. A lane's sums of the segments are added in the same tree
// whatever the number of tokens, so the bits of a token do not depend on it. The blocks of a token
// group share the write to norm.out. kTokens: at least those of the block.
template <int kTokens>
__device__ __forceinline__ void norm_tokens(const RmsNormArgs& norm, uint32_t* x,
                                            float (&partials)[kFusedWarps][32], int lane,
                                            int warp) {
  constexpr int kWarps = kFusedWarps / kTokens;  // of a token
  const int in_group = warp / kWarps, token = blockIdx.y * 8 + in_group, fours = norm.hidden / 4;
  const int segment = (fours + kFusedThreads - 1) / kFusedThreads * 32;
  const int first = warp % kWarps * segment + lane;
  const int end = token < norm.count ? fours : 0;
  const float4* residual =
      reinterpret_cast<const float4*>(norm.residual + size_t(end ? token : 0) * norm.hidden);
  float sums[kTokens] = {};  // of this warp's segments
  for (int i = first; i < first + segment; i += 32) {
#pragma unroll
    for (int s = 0; s < kTokens; ++s) {
      const int at = i + s * kWarps * segment;
      if (at >= end) continue;
      const float4 r = residual[at];
      sums[s] += r.x * r.x + r.y * r.y + r.z * r.z + r.w * r.w;
    }
  }
  partials[warp][lane] = tree_sum(sums);
  __syncthreads();
  float parts[kWarps];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) parts[w] = partials[in_group * kWarps + w][lane];
  const float scale = rsqrtf(warp_sum(tree_sum(parts)) / norm.hidden + norm.eps);
  for (int i = first; i < first + segment; i += 32) {
#pragma unroll
    for (int s = 0; s < kTokens; ++s) {
      const int at = i + s * kWarps * segment;
      if (at >= end) continue;
      const float4 r = residual[at], w = reinterpret_cast<const float4*>(norm.norm)[at];
      const uint2 packed = {pack_bf16(r.x * scale * w.x, r.y * scale * w.y),
                            pack_bf16(r.z * scale * w.z, r.w * scale * w.w)};
      *reinterpret_cast<uint2*>(x + (at / 2 * 8 + in_group) * 4 + at % 2 * 2) = packed;
      if (in_group % gridDim.x == blockIdx.x) {
        *reinterpret_cast<uint2*>(norm.out + wide_at(at * 4, token, norm.padded)) = packed;
      }
    }
  }
  __syncthreads();
}
__device__ __forceinline__ void norm_tokens(const RmsNormArgs& norm, uint32_t* x, int lane,
                                            int warp) {
  __shared__ float partials[kFusedWarps][32];
  const int tokens = norm.count - blockIdx.y * 8;
  tokens == 1   ? norm_tokens<1>(norm, x, partials, lane, warp)
  : tokens == 2 ? norm_tokens<2>(norm, x, partials, lane, warp)
  : tokens <= 4 ? norm_tokens<4>(norm, x, partials, lane, warp)
                : norm_tokens<8>(norm, x, partials, lane, warp);
}

// One warp's K range of the router GEMM. Its first weights are loaded before the previous kernel
// has ended.
struct RouterRange {
  static constexpr int kDepth = 8;  // chunks in flight
  const int chunks, first, end;
  const uint4* weights;
  uint4 words[kDepth];

  __device__ __forceinline__ RouterRange(const FusedRoutingArgs& a, int lane, int warp)
      : chunks(a.router.chunks),
        first(warp * ((chunks + kFusedWarps - 1) / kFusedWarps)),
        end(min(chunks, first + (chunks + kFusedWarps - 1) / kFusedWarps)),
        weights(reinterpret_cast<const uint4*>(a.router.data + a.router.stride * a.matrix) +
                size_t(blockIdx.x) * chunks * 32 + lane) {}
  __device__ __forceinline__ void load(int from) {
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      words[j] = from + j < end ? __ldcs(weights + (from + j) * 32) : uint4{0, 0, 0, 0};
    }
  }
  // The chunks after the first kDepth, into L2.
  __device__ __forceinline__ void prefetch() const {
    for (int c = first + kDepth; c < end; ++c) ptx::prefetch_l2(weights + c * 32);
  }
  __device__ __forceinline__ void multiply(const uint32_t* x, int lane, float (&d)[4]) {
    for (int c = first; c < end; c += kDepth) {
      if (c > first) load(c);
#pragma unroll
      for (int j = 0; j < kDepth; ++j) {
        const uint32_t* at = x + min(c + j, chunks - 1) * 64 + lane;
        ptx::mma_bf16(d, {words[j].x, words[j].y, words[j].z, words[j].w}, at[0], at[32]);
      }
    }
  }
};

// Adds the warps' sums and writes the logits of 16 experts x 8 tokens.
__device__ __forceinline__ void store_logits(const FusedRoutingArgs& a, const float (&d)[4],
                                             int lane, int warp) {
  const ExpertRouting& r = a.routing;
  __shared__ float partials[kFusedWarps][128];
#pragma unroll
  for (int v = 0; v < 4; ++v) partials[warp][lane * 4 + v] = d[v];
  __syncthreads();
  if (threadIdx.x < 128) {
    const int row = threadIdx.x % 16, column = threadIdx.x / 16;
    const int at = (row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2;  // lane, register
    float logit = 0;
    for (int w = 0; w < kFusedWarps; ++w) logit += partials[w][at];
    const int token = blockIdx.y * 8 + column, expert = blockIdx.x * kBlockRows + row;
    if (token >= a.norm.count || expert >= r.experts) return;
    r.logits[size_t(token) * r.experts + expert] = logit + (a.bias ? a.bias[expert] : 0);
  }
}

// Whether this block is the last of the grid to arrive. Its threads then see what all blocks wrote.
__device__ __forceinline__ bool last_to_arrive(unsigned* arrived) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = ptx::atom_release_increment(arrived) == gridDim.x * gridDim.y - 1;
    if (last) {
      ptx::fence_acquire_release();
      *arrived = 0;
    }
  }
  __syncthreads();
  return last;
}

// One block per SM: with two, the compiler keeps to 64 registers and the loads of a row come in
// turns (Qwen3-30B-A3B fp8, batch 8, a step: 5.11 ms instead of 4.99).
template <bool kByRules>
__global__ void __launch_bounds__(kFusedThreads, 1)
    fused_routing_kernel(const __grid_constant__ FusedRoutingArgs a) {
  extern __shared__ uint32_t x[];
  __shared__ int experts[kFusedRoutingMaxAssignments];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  RouterRange range(a, lane, warp);
  range.load(range.first);
  range.prefetch();
  ptx::griddepcontrol_launch_dependents();
  for (int i = threadIdx.x * 32; i < a.norm.hidden; i += kFusedThreads * 32) {
    ptx::prefetch_l2(a.norm.norm + i);
  }
  ptx::griddepcontrol_wait();

  norm_tokens(a.norm, x, lane, warp);
  float d[4] = {};
  range.multiply(x, lane, d);
  store_logits(a, d, lane, warp);
  if (a.logits_only || !last_to_arrive(a.arrived)) return;
  __shared__ SlotScratch scratch;
  ExpertRouting routing = a.routing;
  routing.expert = experts;
  for (int t = warp; t < routing.tokens; t += kFusedWarps) {
    select_experts<kByRules>(routing, t, lane);
  }
  __syncthreads();
  assign_slots(routing, scratch, [] { __syncthreads(); });
}

void check_routing(const ExpertRouting& r) {
  if (r.experts > kMaxExperts || r.top_k > kMaxTopK) {
    throw Error("routing of {} of {} experts per token is not supported: at most {} of {}", r.top_k,
                r.experts, kMaxTopK, kMaxExperts);
  }
  if (r.rules.groups > kMaxRoutingGroups) {
    throw Error("routing among {} groups of experts is not supported: at most {}", r.rules.groups,
                kMaxRoutingGroups);
  }
}

template <bool kByRules>
void launch_fused(cudaStream_t stream, const FusedRoutingArgs& args) {
  [[maybe_unused]] static const bool ready =
      prefer_max_shared_memory(fused_routing_kernel<kByRules>) &&
      allow_shared_memory(fused_routing_kernel<kByRules>, kFusedRoutingMaxHidden * 16);
  launch_dependent(fused_routing_kernel<kByRules>,
                   dim3(args.router.blocks, (args.norm.count + 7) / 8), kFusedThreads,
                   size_t(args.norm.hidden) * 16, stream, args);
}

}  // namespace

void route_tokens(cudaStream_t stream, const ExpertRouting& r) {
  check_routing(r);
  constexpr int kTokensPerBlock = kThreads / 32;
  launch_dependent(r.rules.is_plain() ? top_k_kernel<false> : top_k_kernel<true>,
                   dim3((r.tokens + kTokensPerBlock - 1) / kTokensPerBlock), kThreads, 0, stream,
                   r);
  launch_dependent(count_kernel, dim3(r.experts), kThreads, 0, stream, r);
  launch_dependent(slot_kernel, dim3(r.experts), kThreads, 0, stream, r);
}

void gather_tokens(cudaStream_t stream, const ExpertRouting& r, const uint16_t* from, int padded,
                   uint16_t* to, int slots, int columns) {
  launch_dependent(r.rules.scales_input ? gather_scaled_kernel : gather_kernel,
                   dim3(slots < 4096 ? slots : 4096), kThreads, 0, stream, r, from, padded, to,
                   slots, columns);
}

void combine_experts(cudaStream_t stream, const ExpertOutputs& outputs, int tokens, int hidden,
                     float* to) {
  launch_dependent(combine_kernel, dim3(tokens), kThreads, 0, stream, outputs, hidden, to);
}

void route_tokens_fused(cudaStream_t stream, const FusedRoutingArgs& args) {
  check_routing(args.routing);
  args.routing.rules.is_plain() ? launch_fused<false>(stream, args)
                                : launch_fused<true>(stream, args);
}

}  // namespace ridge::cuda
