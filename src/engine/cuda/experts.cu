#include "engine/cuda/experts.cuh"
#include "engine/cuda/tiles.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256, kMostPerLane = 16;  // experts: at most 32 x this

// A warp a token: softmax over all, then the top_k largest; of equals the lower index.
__global__ void choose_experts(const __grid_constant__ Routing r) {
  let_next_begin();
  after_previous();
  const int token = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (token >= r.tokens) return;
  const float* logits = r.logits + size_t(token) * r.experts;
  float value[kMostPerLane];
  float most = -INFINITY;
#pragma unroll
  for (int i = 0; i < kMostPerLane; ++i) {
    const int e = lane + 32 * i;
    value[i] = e < r.experts ? logits[e] : -INFINITY;
    most = fmaxf(most, value[i]);
  }
  for (int across = 16; across; across /= 2) {
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, across));
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < kMostPerLane; ++i) all += expf(value[i] - most);
  for (int across = 16; across; across /= 2) all += __shfl_xor_sync(0xffffffffu, all, across);
  float chosen = 0;
  for (int k = 0; k < r.top_k; ++k) {
    float best = -INFINITY;
    int which = r.experts;
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) {
      if (value[i] > best) best = value[i], which = lane + 32 * i;
    }
    for (int across = 16; across; across /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, across);
      const int its = __shfl_xor_sync(0xffffffffu, which, across);
      if (other > best || (other == best && its < which)) best = other, which = its;
    }
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) {
      if (which == lane + 32 * i) value[i] = -INFINITY;
    }
    const float weight = expf(best - most) / all;
    chosen += weight;
    if (lane == 0) {
      r.expert[token * r.top_k + k] = which;
      r.weight[token * r.top_k + k] = weight;
    }
  }
  __syncwarp();
  if (r.normalize && lane < r.top_k) r.weight[token * r.top_k + lane] /= chosen;
}

__global__ void count_tokens(const __grid_constant__ Routing r) {
  let_next_begin();
  after_previous();
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
__global__ void place_tokens(const __grid_constant__ Routing r) {
  let_next_begin();
  after_previous();
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

__global__ void gather_kernel(const __grid_constant__ Routing r, const uint16_t* from, int padded,
                              uint16_t* to, int slots, int columns) {
  let_next_begin();
  after_previous();
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

__global__ void combine_kernel(const __grid_constant__ Routing r, const float* rows, int columns,
                               float* sums, bool store) {
  let_next_begin();
  after_previous();
  const int token = blockIdx.x;
  float* to = sums + size_t(token) * columns;
  for (int c = threadIdx.x; c < columns; c += kThreads) {
    float sum = 0;
    for (int k = 0; k < r.top_k; ++k) {
      const int i = token * r.top_k + k;
      sum += r.weight[i] * rows[size_t(r.slot[i]) * columns + c];
    }
    to[c] = store ? sum : to[c] + sum;
  }
}

}  // namespace

void route(cudaStream_t stream, const Routing& r) {
  if (r.experts > 32 * kMostPerLane || r.top_k > 32) {
    throw Error("{} of {} experts a token: at most 32 of {}", r.top_k, r.experts,
                32 * kMostPerLane);
  }
  constexpr int kEach = kThreads / 32;
  launch_dependent(choose_experts, dim3((r.tokens + kEach - 1) / kEach), kThreads, 0, stream, r);
  launch_dependent(count_tokens, dim3(r.experts), kThreads, 0, stream, r);
  launch_dependent(place_tokens, dim3(r.experts), kThreads, 0, stream, r);
}

void gather(cudaStream_t stream, const Routing& r, const uint16_t* from, int padded, uint16_t* to,
            int slots, int columns) {
  launch_dependent(gather_kernel, dim3(slots < 4096 ? slots : 4096), kThreads, 0, stream, r, from,
                   padded, to, slots, columns);
}

void combine(cudaStream_t stream, const Routing& r, const float* rows, int columns, float* sums,
             bool store) {
  launch_dependent(combine_kernel, dim3(r.tokens), kThreads, 0, stream, r, rows, columns, sums,
                   store);
}

}  // namespace ridge::cuda
