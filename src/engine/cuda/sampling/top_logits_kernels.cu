// Two kernels. The first cuts each row into parts of 8192 logits, a block each: sums of
// exponentials, the draw's best score, and the largest key of every group of 32 logits. The second,
// a block per row, looks only at the n groups with the largest keys: they hold the n largest
// logits.
#include <cmath>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/sampling/top_logits_kernels.cuh"
#include "engine/sampling/gumbel.h"

namespace ridge::cuda {
namespace {

using Key = unsigned long long;  // of logit_key: never 0, which stands for no logit

// A group: 32 consecutive logits, one per lane of a warp. A thread has one of each of kGroups
// groups.
constexpr int kPartThreads = 256, kGroups = 32, kPart = kGroups * kPartThreads;
constexpr int kThreads = 1024, kWarps = kThreads / 32;
static_assert(kMaxRequestedTokens <= kPartThreads);
constexpr int kMaxKept = kThreads / 2;
constexpr int kMaxGroups = 16 * kThreads;  // the second kernel holds them in registers
static_assert(kPart == kTopLogitsPart && 32 * kMaxGroups == kTopLogitsMaxVocab);

__device__ float max_of_warp(float value) {
  for (int across = 16; across; across /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, across));
  }
  return value;
}
template <typename Number>
__device__ Number sum_of_warp(Number value) {
  for (int across = 16; across; across /= 2) value += __shfl_xor_sync(0xffffffffu, value, across);
  return value;
}

template <int kCount>
__device__ Key max_of_block(Key key, Key (&of_warps)[kCount]) {
  for (int offset = 16; offset; offset /= 2) {
    key = max(key, __shfl_xor_sync(0xffffffffu, key, offset));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = key;
  __syncthreads();
  for (const Key other : of_warps) key = max(key, other);
  return key;
}

// The best Gumbel score of this thread's logits. They are read again: held in registers, the loop
// would have to be unrolled, and the logarithms are long.
__device__ Key draw_from(const float* logits, int begin, int vocab, int first,
                         const TopLogitsRequestRow& request) {
  Key best = 0;
#pragma unroll 2
  for (int i = 0; i < kGroups; ++i) {
    const int token = begin + i * 32 + threadIdx.x % 32;
    if (token >= vocab) break;
    const float score = gumbel_score(logits[token], request.scale, request.key, first + token);
    best = max(best, logit_key(score, token));
  }
  return best;
}

// One block per part of a row.
__global__ void __launch_bounds__(kPartThreads)
    part_kernel(const float* logits, int vocab, int first_token,
                const TopLogitsRequestRow* requests, TopLogitsPart* parts, Key* groups,
                TopLogitsRow* rows) {
  constexpr int kPartWarps = kPartThreads / 32;
  __shared__ float of_warps[3][kPartWarps];
  __shared__ Key drawn_of_warps[kPartWarps];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int row = blockIdx.y, part = row * gridDim.x + blockIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int begin = blockIdx.x * kPart + warp * 32 * kGroups;
  const TopLogitsRequestRow& request = requests[row];
  const float* from = logits + size_t(row) * vocab;
  float values[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = begin + i * 32 + lane;
    values[i] = at < vocab ? from[at] : -INFINITY;
  }
  float largest = -INFINITY;
  bool broken = false;
  Key best = 0;  // of group `lane`
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    broken |= !(values[i] < INFINITY);
    largest = fmaxf(largest, values[i]);
    const uint32_t ordered = logit_key(values[i], 0) >> 32;
    const uint32_t highest = __reduce_max_sync(0xffffffffu, ordered);
    const int first = __ffs(__ballot_sync(0xffffffffu, ordered == highest)) - 1;
    if (lane == i) best = Key{highest} << 32 | (0xffffffffu - (begin + i * 32 + first));
  }
  const int group = begin + lane * 32;
  groups[size_t(part) * kPartThreads + threadIdx.x] = group < vocab ? best : 0;

  largest = max_of_warp(largest);
  if (lane == 0) of_warps[0][warp] = largest;
  broken = __syncthreads_or(broken);
  largest = max_of_warp(of_warps[0][lane % kPartWarps]);
  float sum = 0, scaled = 0;
  if (largest > -INFINITY && request.count > 0) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      sum += __expf(values[i] - largest);
      scaled += __expf((values[i] - largest) * request.scale);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < request.token_count) {
    const int at = request.tokens[threadIdx.x] - first_token;
    rows[row].requested[threadIdx.x] = at >= 0 && at < vocab ? from[at] : -INFINITY;
  }
  sum = sum_of_warp(sum), scaled = sum_of_warp(scaled);
  if (lane == 0) of_warps[1][warp] = sum, of_warps[2][warp] = scaled;
  Key drawn = 0;
  if (request.draw)
    drawn = max_of_block(draw_from(from, begin, vocab, first_token, request), drawn_of_warps);
  __syncthreads();
  if (threadIdx.x > 0) return;
  TopLogitsPart found = {largest, {0, 0}, broken, drawn};
  for (int w = 0; w < kPartWarps; ++w) {
    for (int n = 0; n < 2; ++n) found.sums[n] += of_warps[1 + n][w];
  }
  parts[part] = found;
}

// Over the block; each call uses other `counts` than the one before.
__device__ int sum_of_block(int value, int* counts) {
  value = __reduce_add_sync(0xffffffffu, value);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = value;
  __syncthreads();
  return __reduce_add_sync(0xffffffffu, counts[threadIdx.x % 32]);
}

// A key that exactly `count` of the block's keys reach; all keys differ, at least `count` reach
// `low`, and fewer reach `high`. A thread's keys from `used` on are none.
template <int kEach>
__device__ Key reached_by(int count, const Key (&keys)[kEach], int used, Key low, Key high,
                          int (&counts)[2][kWarps]) {
  for (int turn = 0; high - low > 1; turn ^= 1) {
    const Key middle = low + (high - low) / 2;
    int reaching = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i == used) break;
      reaching += keys[i] >= middle;
    }
    reaching = sum_of_block(reaching, counts[turn]);
    (reaching >= count ? low : high) = middle;
    if (reaching == count) break;
  }
  __syncthreads();  // `counts` may be used again
  return low;
}

// Where in a list of the block's that has `next` entries the `count` of this thread go.
__device__ int place_in(int* next, int count) {
  int until = count;
  for (int across = 1; across < 32; across *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, until, across);
    if (threadIdx.x % 32 >= across) until += before;
  }
  int begin = 0;
  if (threadIdx.x % 32 == 31) begin = atomicAdd(next, until);
  return __shfl_sync(0xffffffffu, begin, 31) + until - count;
}

struct RowShared {
  int counts[2][kWarps];
  uint32_t highest[kWarps], lowest[kWarps];
  int groups[kMaxCandidates], group_count;  // with the largest keys
  Key kept[kMaxKept];                       // of their logits, those that may be candidates
  int kept_count;
  Candidate sorted[kMaxCandidates];
};

struct KeyRange {
  Key low, high;  // the candidates' keys are at least `low` and below `high`
};

// The `count` groups with the largest keys, into shared.groups; the range of their keys.
__device__ KeyRange select_groups(const Key* groups, int group_count, int count,
                                  RowShared& shared) {
  constexpr int kEach = kMaxGroups / kThreads;
  const int used = (group_count + kThreads - 1) / kThreads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Key keys[kEach];
  uint32_t highest = 0, lowest = ~0u;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = i * kThreads + threadIdx.x;
    keys[i] = at < group_count ? groups[at] : 0;
    const uint32_t value = keys[i] >> 32;
    highest = max(highest, value);
    if (value) lowest = min(lowest, value);
  }
  highest = __reduce_max_sync(0xffffffffu, highest);
  lowest = __reduce_min_sync(0xffffffffu, lowest);
  if (lane == 0) shared.highest[warp] = highest, shared.lowest[warp] = lowest;
  if (threadIdx.x == 0) shared.group_count = shared.kept_count = 0;
  __syncthreads();
  const Key high = (Key{__reduce_max_sync(0xffffffffu, shared.highest[lane])} + 1) << 32;
  Key low = Key{__reduce_min_sync(0xffffffffu, shared.lowest[lane])} << 32;
  low = reached_by(count, keys, used, low, high, shared.counts);
  int reaching = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) reaching += keys[i] >= low;
  int at = place_in(&shared.group_count, reaching);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (keys[i] >= low) shared.groups[at++] = i * kThreads + threadIdx.x;
  }
  __syncthreads();
  return {low, high};
}

// The keys of at least the `count` largest logits of the selected groups, into shared.kept. A warp
// takes a group, a lane a logit.
__device__ void select_logits(const float* logits, int vocab, int count, int group_count,
                              KeyRange range, RowShared& shared) {
  constexpr int kEach = kMaxCandidates * 32 / kThreads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Key keys[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int group = i * kWarps + warp;
    const int token = group < group_count ? shared.groups[group] * 32 + lane : vocab;
    keys[i] = token < vocab ? logit_key(logits[token], token) : 0;
  }
  const auto count_from = [&](Key low) {
    int reaching = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) reaching += keys[i] >= low;
    return reaching;
  };
  // With fewer groups than candidates every logit may be one. Otherwise hardly more than `count`
  // logits reach the groups' limit, unless a few groups hold most of the largest.
  Key low = group_count < count ? 1 : range.low;
  int reaching = count_from(low);
  if (sum_of_block(reaching, shared.counts[0]) > kMaxKept) {
    __syncthreads();
    low = reached_by(count, keys, kEach, low, range.high, shared.counts);
    reaching = count_from(low);
  }
  int at = place_in(&shared.kept_count, reaching);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (keys[i] >= low) shared.kept[at++] = keys[i];
  }
  __syncthreads();
}

// The `count` largest of shared.kept in order: a key's place is the number of larger keys. A pair
// of lanes takes a key.
__device__ void sort_candidates(int count, RowShared& shared) {
  const int kept_count = shared.kept_count;
  if (threadIdx.x / 32 * 16 >= kept_count) return;
  const Key key = threadIdx.x / 2 < kept_count ? shared.kept[threadIdx.x / 2] : 0;
  int place = 0;
#pragma unroll 8
  for (int i = threadIdx.x % 2; i < kept_count; i += 2) place += shared.kept[i] > key;
  place += __shfl_xor_sync(0xffffffffu, place, 1);
  if (key && place < count && threadIdx.x % 2 == 0) {
    shared.sorted[place] = {key_logit(key), key_token(key)};
  }
}

// The row's sums and its drawn key from those of its parts; one warp.
__device__ Key combine_parts(const TopLogitsPart* parts, int part_count, float scale,
                             TopLogitsRow& to) {
  const int lane = threadIdx.x % 32;
  float largest = -INFINITY;
  Key drawn = 0;
  for (int i = lane; i < part_count; i += 32) {
    largest = fmaxf(largest, parts[i].max);
    drawn = max(drawn, parts[i].drawn);
  }
  largest = max_of_warp(largest);
  double sum = 0, scaled = 0;
  for (int i = lane; i < part_count; i += 32) {
    const TopLogitsPart part = parts[i];
    if (part.max == -INFINITY) continue;
    sum += double(expf(part.max - largest)) * part.sums[0];
    scaled += double(expf((part.max - largest) * scale)) * part.sums[1];
  }
  sum = sum_of_warp(sum), scaled = sum_of_warp(scaled);
  for (int offset = 16; offset; offset /= 2) {
    drawn = max(drawn, __shfl_xor_sync(0xffffffffu, drawn, offset));
  }
  if (lane == 0) to.sums[0] = sum, to.sums[1] = scaled;
  return drawn;
}

// One block per row. `chosen`: [row], on the device.
__global__ void __launch_bounds__(kThreads)
    row_kernel(const float* logits, int vocab, int first_token, int part_count,
               const TopLogitsRequestRow* requests, const TopLogitsPart* parts, const Key* groups,
               TopLogitsRow* rows, int* chosen) {
  __shared__ RowShared shared;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* from = logits + size_t(row) * vocab;
  const TopLogitsRequestRow& request = requests[row];
  TopLogitsRow& to = rows[row];
  parts += row * part_count;
  if (__syncthreads_or(threadIdx.x < part_count && parts[threadIdx.x].broken)) {
    if (threadIdx.x == 0) to.broken = 1, chosen[row] = 0;
    return;
  }
  const int count = min(request.count, vocab);
  if (count > 0) {
    const int group_count = min(count, (vocab + 31) / 32);
    const KeyRange range = select_groups(groups + size_t(row) * part_count * kPartThreads,
                                         part_count * kPartThreads, group_count, shared);
    select_logits(from, vocab, count, group_count, range, shared);
    sort_candidates(count, shared);
  }
  if (warp == kWarps - 1) {  // it has no key to sort, as a rule
    const Key drawn = combine_parts(parts, part_count, request.scale, to);
    if (lane == 0) {
      to.broken = 0, to.count = count;
      if (request.draw) {
        const int token = key_token(drawn);
        to.chosen = {from[token], first_token + token};
        chosen[row] = first_token + token;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x >= count) return;
  Candidate candidate = shared.sorted[threadIdx.x];
  candidate.token += first_token;
  to.candidates[threadIdx.x] = candidate;  // coalesced
  if (threadIdx.x == 0 && !request.draw) to.chosen = candidate, chosen[row] = candidate.token;
}

// Rows that want nothing but the argmax, which the step has found.
__global__ void argmax_kernel(const float* logits, int vocab, int first_token, const int* argmax,
                              int count, TopLogitsRow* rows, int* chosen) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= count) return;
  const int token = first_token + argmax[row];
  const float logit = logits[size_t(row) * vocab + argmax[row]];
  rows[row].chosen = {logit, token};
  rows[row].broken = !(logit < INFINITY);  // in the order of keys, NaN comes after +inf
  chosen[row] = token;
}

}  // namespace

void find_top_logits(cudaStream_t stream, const TopLogitsArgs& a) {
  const int parts = top_logits_parts(a.vocab);
  launch_dependent(part_kernel, dim3(parts, a.rows), kPartThreads, 0, stream, a.logits, a.vocab,
                   a.first, a.requests, a.parts, a.groups, a.answers);
  launch_dependent(row_kernel, dim3(a.rows), kThreads, 0, stream, a.logits, a.vocab, a.first, parts,
                   a.requests, a.parts, a.groups, a.answers, a.chosen);
}

void pass_on_argmax(cudaStream_t stream, const TopLogitsArgs& a, const int* argmax) {
  constexpr int kEach = 128;
  launch_dependent(argmax_kernel, dim3((a.rows + kEach - 1) / kEach), kEach, 0, stream, a.logits,
                   a.vocab, a.first, argmax, a.rows, a.answers, a.chosen);
}

}  // namespace ridge::cuda
