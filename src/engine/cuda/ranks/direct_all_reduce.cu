#include <algorithm>

#include "base/ptx/execution.cuh"
#include "base/ptx/memory_order.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/ranks/direct_all_reduce.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512;

__device__ unsigned* flag_at(const DirectAllReduceArgs& a, int region, int wait, int from) {
  unsigned* flags = reinterpret_cast<unsigned*>(a.region[region]);
  return flags + (wait * kMaxDirectRanks + from) * kMaxDirectBlocks + blockIdx.x;
}
__device__ float4* floats_at(const DirectAllReduceArgs& a, int region, int set) {
  float* first = reinterpret_cast<float*>(
      a.region[region] + 2 * kMaxDirectRanks * kMaxDirectBlocks * sizeof(unsigned));
  return reinterpret_cast<float4*>(first + set * a.capacity);
}

__device__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Tells the others that this block has written, and waits until their blocks have. One thread per
// rank. False: one does not come, or nobody waits for the result.
__device__ bool meet(const DirectAllReduceArgs& a, int wait) {
  __threadfence_system();
  __syncthreads();
  bool lost = false;
  if (threadIdx.x < a.ranks) {
    const int other = threadIdx.x;
    ptx::st_release_system(flag_at(a, other, wait, a.rank), a.turn);
    const unsigned* flag = flag_at(a, a.rank, wait, other);
    const uint64_t begin = now_ns();
    for (unsigned polls = 1; static_cast<int>(ptx::ld_acquire_system(flag) - a.turn) < 0; ++polls) {
      if (polls % 256 != 0) continue;
      __nanosleep(100);
      if (now_ns() - begin < a.limit_ns && *a.stop == 0) continue;
      if (*a.stop == 0) *a.missing = 1 + other;
      *a.ended = 1;
      lost = true;
      break;
    }
  }
  return !__syncthreads_or(lost);
}

__device__ float4 sum_of_ranks(const DirectAllReduceArgs& a, int set, size_t i) {
  float4 sum = __ldcg(floats_at(a, 0, set) + i);
  for (int rank = 1; rank < a.ranks; ++rank) {
    const float4 more = __ldcg(floats_at(a, rank, set) + i);
    sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    direct_all_reduce_kernel(const __grid_constant__ DirectAllReduceArgs a) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (__syncthreads_or(threadIdx.x == 0 && ptx::ld_relaxed(a.ended) != 0)) return;
  const int set = a.turn % 2;
  const size_t fours = a.count / 4, each = (fours + gridDim.x - 1) / gridDim.x;
  const size_t first = min(fours, blockIdx.x * each), end = min(fours, first + each);
  float4* values = reinterpret_cast<float4*>(a.values);

  float4* mine = floats_at(a, a.rank, set);
  for (size_t i = first + threadIdx.x; i < end; i += kThreads) mine[i] = values[i];
  if (!meet(a, 0)) return;
  if (!a.two_shot) {
    for (size_t i = first + threadIdx.x; i < end; i += kThreads)
      values[i] = sum_of_ranks(a, set, i);
    return;
  }
  const auto part_begin = [&](int rank) { return first + (end - first) * rank / a.ranks; };
  float4* sums = floats_at(a, a.rank, 2 + set);
  for (size_t i = part_begin(a.rank) + threadIdx.x; i < part_begin(a.rank + 1); i += kThreads) {
    sums[i] = sum_of_ranks(a, set, i);
  }
  if (!meet(a, 1)) return;
  for (int rank = 0; rank < a.ranks; ++rank) {
    const float4* from = floats_at(a, rank, 2 + set);
    for (size_t i = part_begin(rank) + threadIdx.x; i < part_begin(rank + 1); i += kThreads) {
      values[i] = __ldcg(from + i);
    }
  }
}

}  // namespace

void direct_all_reduce(cudaStream_t stream, const DirectAllReduceArgs& args) {
  const size_t blocks = (args.count / 4 + kThreads - 1) / kThreads;
  launch_dependent(direct_all_reduce_kernel,
                   dim3(unsigned(std::clamp<size_t>(blocks, 1, kMaxDirectBlocks))), kThreads, 0,
                   stream, args);
}

}  // namespace ridge::cuda
