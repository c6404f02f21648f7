#include "base/ptx/async_copy.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/moe/experts.cuh"
#include "engine/cuda/scalar.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256, kMostPerLane = 16;  // experts: at most 32 x this

// A warp's: softmax over all, then the top_k largest; of equals the lower index.
template <int kPerLane>
__device__ void choose(const ExpertRouting& r, int token, int lane) {
  const float* logits = r.logits + size_t(token) * r.experts;
  uint32_t key[kPerLane];  // in the order of the logits; 0: none
  uint32_t best = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    key[i] = e < r.experts ? logit_key(__ldcg(logits + e), 0) >> 32 : 0;
    best = max(best, key[i]);
  }
  const auto value = [](uint32_t k) { return key_logit(static_cast<unsigned long long>(k) << 32); };
  const float most = value(__reduce_max_sync(0xffffffffu, best));
  float all = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (lane + 32 * i < r.experts) all += expf(value(key[i]) - most);
  }
  for (int across = 16; across; across /= 2) all += __shfl_xor_sync(0xffffffffu, all, across);
  uint32_t its_key = 0;  // lane k has choice k
  unsigned its = 0;
  for (int k = 0; k < r.top_k; ++k) {
    best = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = max(best, key[i]);
    best = __reduce_max_sync(0xffffffffu, best);
    unsigned which = r.experts - 1;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (key[i] == best) which = min(which, lane + 32 * i);
    }
    which = __reduce_min_sync(0xffffffffu, which);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (which == lane + 32 * i) key[i] = 0;
    }
    if (lane == k) its_key = best, its = which;
  }
  float weight = lane < r.top_k ? expf(value(its_key) - most) / all : 0;
  if (r.normalize) {
    float sum = weight;
    for (int across = 16; across; across /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
    weight /= sum;
  }
  if (lane >= r.top_k) return;
  r.expert[token * r.top_k + lane] = its;
  r.weight[token * r.top_k + lane] = weight;
}
__device__ void choose(const ExpertRouting& r, int token, int lane) {
  r.experts <= 128 ? choose<4>(r, token, lane) : choose<kMostPerLane>(r, token, lane);
}

__global__ void choose_experts(const __grid_constant__ ExpertRouting r) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int token = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (token < r.tokens) choose(r, token, threadIdx.x % 32);
}

__global__ void count_tokens(const __grid_constant__ ExpertRouting r) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  int mine = 0;
  for (int i = threadIdx.x; i < r.tokens * r.top_k; i += kThreads) {
    mine += r.expert[i] == static_cast<int>(blockIdx.x);
  }
  mine = __reduce_add_sync(0xffffffffu, mine);
  __shared__ int parts[kThreads / 32];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  int sum = 0;
  for (const int part : parts) sum += part;
  r.count[blockIdx.x] = sum;
}

// A block an expert: its tokens in order, from where the experts before it end.
__global__ void place_tokens(const __grid_constant__ ExpertRouting r) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int first = 0;  // tile
  for (int e = 0; e < expert; ++e) first += (r.count[e] + r.tile - 1) / r.tile;
  const int tiles = (r.count[expert] + r.tile - 1) / r.tile;
  for (int i = threadIdx.x; i < tiles; i += kThreads) r.tile_matrix[first + i] = expert;
  if (expert == r.experts - 1 && threadIdx.x == 0) *r.tile_count = first + tiles;
  __shared__ int parts[kThreads / 32];
  int next = first * r.tile;
  for (int from = 0; from < r.tokens * r.top_k; from += kThreads) {
    const int i = from + threadIdx.x;
    const bool mine = i < r.tokens * r.top_k && r.expert[i] == expert;
    const unsigned which = __ballot_sync(0xffffffffu, mine);
    __syncthreads();
    if (lane == 0) parts[warp] = __popc(which);
    __syncthreads();
    int before = __popc(which & ((1u << lane) - 1)), sum = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) before += parts[w];
      sum += parts[w];
    }
    if (mine) r.slot[i] = next + before, r.source[next + before] = i / r.top_k;
    next += sum;
  }
  for (int i = next + threadIdx.x; i < (first + tiles) * r.tile; i += kThreads) r.source[i] = -1;
}

__global__ void gather_kernel(const __grid_constant__ ExpertRouting r, const uint16_t* from,
                              int padded, uint16_t* to, int slots, int columns) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int used = *r.tile_count * r.tile;
  for (int slot = blockIdx.x; slot < used; slot += gridDim.x) {
    const int token = r.source[slot];
    if (token < 0) continue;  // what such slots hold is nobody's
    for (int k = threadIdx.x * 8; k < columns; k += kThreads * 8) {
      *reinterpret_cast<uint4*>(to + wide_at(k, slot, slots)) =
          *reinterpret_cast<const uint4*>(from + wide_at(k, token, padded));
    }
  }
}

constexpr int kFewWarps = 16, kFewThreads = kFewWarps * 32;
static_assert(kFewThreads >= 32 * kMostPerLane);  // a thread an expert

// A thread a choice, and one an expert: its tokens in order, from where the experts before it end.
__device__ void place_few(const ExpertRouting& r) {
  constexpr int kChoiceWarps = kFusedRoutingMaxAssignments / 32;
  __shared__ uint8_t counts[kChoiceWarps][kFewThreads];  // choices of a warp for an expert
  __shared__ int first_slot[kFewThreads], tiles[kFewWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int choice = threadIdx.x, expert = threadIdx.x, choices = r.tokens * r.top_k;
  for (int w = 0; w < kChoiceWarps; ++w) counts[w][expert] = 0;
  __syncthreads();
  const int its = choice < choices ? r.expert[choice] : -1;
  const unsigned same = __match_any_sync(0xffffffffu, its);
  int before = __popc(same & ((1u << lane) - 1));
  if (its >= 0 && before == 0) counts[warp][its] = __popc(same);
  __syncthreads();
  int count = 0;
  for (int w = 0; w < kChoiceWarps; ++w) {
    count += counts[w][expert];
    if (its >= 0 && w < warp) before += counts[w][its];
  }
  const int mine = (count + r.tile - 1) / r.tile;
  int end = mine;  // of the expert's tiles
  for (int across = 1; across < 32; across *= 2) {
    const int lower = __shfl_up_sync(0xffffffffu, end, across);
    if (lane >= across) end += lower;
  }
  if (lane == 31) tiles[warp] = end;
  __syncthreads();
  for (int w = 0; w < warp; ++w) end += tiles[w];
  if (expert == kFewThreads - 1) *r.tile_count = end;
  const int slot = (end - mine) * r.tile;
  first_slot[expert] = slot;
  for (int i = end - mine; i < end; ++i) r.tile_matrix[i] = expert;
  for (int i = slot + count; i < end * r.tile; ++i) r.source[i] = -1;
  __syncthreads();
  if (its < 0) return;
  r.slot[choice] = first_slot[its] + before;
  r.source[first_slot[its] + before] = choice / r.top_k;
}

// A block of the grid: 16 experts, 8 tokens. Each norms the tokens for itself; the warps split K.
// Who comes last chooses and places for all.
__global__ void __launch_bounds__(kFewThreads)
    fused_routing_kernel(const __grid_constant__ FusedRoutingArgs a) {
  constexpr int kDepth = 8;        // chunks asked for at a time
  extern __shared__ uint32_t x[];  // [k / 8][token][k % 8], bf16
  __shared__ float squares[kFewWarps], parts[kFewWarps][128];
  __shared__ int chosen[kFusedRoutingMaxAssignments];
  __shared__ bool last;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunks = a.router.chunks;
  const int per = (chunks + kFewWarps - 1) / kFewWarps, first = warp * per;
  const int end = min(chunks, first + per);
  const uint4* weights =
      reinterpret_cast<const uint4*>(a.router.data + a.router.stride * a.matrix) +
      size_t(blockIdx.x) * chunks * 32 + lane;
  uint4 words[kDepth];
  const auto ask = [&](int from) {
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      words[j] = from + j < end ? __ldcs(weights + (from + j) * 32) : uint4{0, 0, 0, 0};
    }
  };
  ask(first);
  ptx::griddepcontrol_launch_dependents();
  for (int i = threadIdx.x * 32; i < a.norm.hidden; i += kFewThreads * 32) {
    ptx::prefetch_l2(a.norm.norm + i);
  }
  ptx::griddepcontrol_wait();

  // Two warps a token.
  const int in_group = warp % 8, token = blockIdx.y * 8 + in_group, fours = a.norm.hidden / 4;
  const int half = (fours + 1) / 2, from = warp / 8 * half, to = min(fours, from + half);
  const bool there = token < a.norm.count;
  const float4* residual =
      reinterpret_cast<const float4*>(a.norm.residual + size_t(there ? token : 0) * a.norm.hidden);
  float sum = 0;
#pragma unroll 8
  for (int i = from + lane; i < to && there; i += 32) {
    const float4 r = residual[i];
    sum += r.x * r.x + r.y * r.y + r.z * r.z + r.w * r.w;
  }
  for (int across = 16; across; across /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
  if (lane == 0) squares[warp] = sum;
  __syncthreads();
  const float scale =
      rsqrtf((squares[in_group] + squares[in_group + 8]) / a.norm.hidden + a.norm.eps);
  for (int i = from + lane; i < to && there; i += 32) {
    const float4 r = residual[i], w = reinterpret_cast<const float4*>(a.norm.norm)[i];
    const uint2 packed = {pack_bf16(r.x * scale * w.x, r.y * scale * w.y),
                          pack_bf16(r.z * scale * w.z, r.w * scale * w.w)};
    *reinterpret_cast<uint2*>(x + (i / 2 * 8 + in_group) * 4 + i % 2 * 2) = packed;
    if (in_group % gridDim.x == blockIdx.x) {
      *reinterpret_cast<uint2*>(a.norm.out + wide_at(i * 4, token, a.norm.padded)) = packed;
    }
  }
  __syncthreads();

  float d[4] = {};
  for (int c = first; c < end; c += kDepth) {
    if (c > first) ask(c);
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      const uint32_t* at = x + min(c + j, chunks - 1) * 64 + lane;
      ptx::mma_bf16(d, {words[j].x, words[j].y, words[j].z, words[j].w}, at[0], at[32]);
    }
  }
#pragma unroll
  for (int v = 0; v < 4; ++v) parts[warp][lane * 4 + v] = d[v];
  __syncthreads();
  if (threadIdx.x < 128) {  // lane and register that have (row, column)
    const int row = threadIdx.x % 16, column = threadIdx.x / 16;
    const int at = (row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2;
    float logit = 0;
    for (int w = 0; w < kFewWarps; ++w) logit += parts[w][at];
    const int its = blockIdx.y * 8 + column, expert = blockIdx.x * kBlockRows + row;
    if (its < a.norm.count && expert < a.routing.experts) {
      a.routing.logits[size_t(its) * a.routing.experts + expert] = logit;
    }
  }

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(a.arrived, 1) == gridDim.x * gridDim.y - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (threadIdx.x == 0) *a.arrived = 0;
  ExpertRouting routing = a.routing;
  routing.expert = chosen;
  for (int t = warp; t < routing.tokens; t += kFewWarps) choose(routing, t, lane);
  __syncthreads();
  place_few(routing);
}

void check_routing(const ExpertRouting& r) {
  if (r.experts > 32 * kMostPerLane || r.top_k > 32) {
    throw Error("{} of {} experts a token: at most 32 of {}", r.top_k, r.experts,
                32 * kMostPerLane);
  }
}

}  // namespace

void route_tokens(cudaStream_t stream, const ExpertRouting& r) {
  check_routing(r);
  constexpr int kEach = kThreads / 32;
  launch_dependent(choose_experts, dim3((r.tokens + kEach - 1) / kEach), kThreads, 0, stream, r);
  launch_dependent(count_tokens, dim3(r.experts), kThreads, 0, stream, r);
  launch_dependent(place_tokens, dim3(r.experts), kThreads, 0, stream, r);
}

void gather_tokens(cudaStream_t stream, const ExpertRouting& r, const uint16_t* from, int padded,
                   uint16_t* to, int slots, int columns) {
  launch_dependent(gather_kernel, dim3(slots < 4096 ? slots : 4096), kThreads, 0, stream, r, from,
                   padded, to, slots, columns);
}

void route_tokens_fused(cudaStream_t stream, const FusedRoutingArgs& args) {
  check_routing(args.routing);
  constexpr int kMostShared = kFusedRoutingMaxHidden * 16;
  static const bool ready = [] {
    check(cudaFuncSetAttribute(fused_routing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kMostShared),
          "asking for shared memory");
    prefer_max_shared_memory(fused_routing_kernel);
    return true;
  }();
  static_cast<void>(ready);
  launch_dependent(fused_routing_kernel, dim3(args.router.blocks, (args.norm.count + 7) / 8),
                   kFewThreads, size_t(args.norm.hidden) * 16, stream, args);
}

}  // namespace ridge::cuda
