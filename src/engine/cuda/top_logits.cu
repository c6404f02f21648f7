#include <algorithm>
#include <cmath>

#include "engine/cuda/scalar.cuh"
#include "engine/cuda/top_logits.cuh"

namespace ridge::cuda {
namespace {

using Key = unsigned long long;  // of logit_key: never 0, which stands for no logit

// Threads of a part and logits of each; a group is 32 of a warp's side by side.
constexpr int kPartThreads = 256, kGroup = 32, kPart = kGroup * kPartThreads;
constexpr int kThreads = 1024, kWarps = kThreads / 32;
static_assert(kMaxRequestedTokens <= kPartThreads);
constexpr int kMostKept = kThreads / 2;
constexpr int kMostGroups = 16 * kThreads;  // a vocabulary of 512 Ki

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

// A block a part of a row: its sums, and the best key of each group of 32 logits side by side.
__global__ void __launch_bounds__(kPartThreads)
    part_kernel(const float* logits, int vocab, const RequestRow* requests, BestPart* parts,
                Key* groups, BestRow* found) {
  constexpr int kPartWarps = kPartThreads / 32;
  __shared__ float of_warps[3][kPartWarps];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int row = blockIdx.y, part = row * gridDim.x + blockIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int begin = blockIdx.x * kPart + warp * 32 * kGroup;
  const RequestRow& request = requests[row];
  const float* from = logits + size_t(row) * vocab;
  float values[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const int at = begin + i * 32 + lane;
    values[i] = at < vocab ? from[at] : -INFINITY;
  }
  float most = -INFINITY;
  bool broken = false;
  Key best = 0;  // of group `lane`
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    broken |= !(values[i] < INFINITY);
    most = fmaxf(most, values[i]);
    const uint32_t ordered = logit_key(values[i], 0) >> 32;
    const uint32_t highest = __reduce_max_sync(0xffffffffu, ordered);
    const int first = __ffs(__ballot_sync(0xffffffffu, ordered == highest)) - 1;
    if (lane == i) best = Key{highest} << 32 | (0xffffffffu - (begin + i * 32 + first));
  }
  const int group = begin + lane * 32;
  groups[size_t(part) * kPartThreads + threadIdx.x] = group < vocab ? best : 0;

  most = max_of_warp(most);
  if (lane == 0) of_warps[0][warp] = most;
  broken = __syncthreads_or(broken);
  most = max_of_warp(of_warps[0][lane % kPartWarps]);
  float sum = 0, scaled = 0;
  if (most > -INFINITY) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      sum += __expf(values[i] - most);
      scaled += __expf((values[i] - most) * request.scale);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < request.token_count) {
    found[row].logits[threadIdx.x] = from[request.tokens[threadIdx.x]];
  }
  sum = sum_of_warp(sum), scaled = sum_of_warp(scaled);
  if (lane == 0) of_warps[1][warp] = sum, of_warps[2][warp] = scaled;
  __syncthreads();
  if (threadIdx.x > 0) return;
  BestPart left = {most, {0, 0}, broken};
  for (int w = 0; w < kPartWarps; ++w) {
    for (int n = 0; n < 2; ++n) left.sums[n] += of_warps[1 + n][w];
  }
  parts[part] = left;
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

// A block a row. The n best logits lie in the n groups whose best are best: these groups alone are
// looked at, a lane a logit.
__global__ void __launch_bounds__(kThreads)
    best_kernel(const float* logits, int vocab, int part_count, const RequestRow* requests,
                const BestPart* parts, const Key* groups, BestRow* found) {
  constexpr int kEach = kMaxCandidates * 32 / kThreads, kGroupsEach = kMostGroups / kThreads;
  __shared__ int counts[2][kWarps], chosen[kMaxCandidates], chosen_count, kept_count;
  __shared__ uint32_t highest[kWarps], lowest[kWarps];
  __shared__ Key kept[kMostKept];
  __shared__ Candidate sorted[kMaxCandidates];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* from = logits + size_t(row) * vocab;
  const RequestRow& request = requests[row];
  BestRow& to = found[row];
  parts += row * part_count;
  const int group_count = part_count * kPartThreads, used = (group_count + kThreads - 1) / kThreads;
  const int wanted = min(request.count, vocab), wanted_groups = min(wanted, (vocab + 31) / 32);
  Key bests[kGroupsEach];
  uint32_t most = 0, least = ~0u;
  groups += size_t(row) * group_count;
#pragma unroll
  for (int i = 0; i < kGroupsEach; ++i) {
    const int at = i * kThreads + threadIdx.x;
    bests[i] = at < group_count ? groups[at] : 0;
    const uint32_t value = bests[i] >> 32;
    most = max(most, value);
    if (value) least = min(least, value);
  }
  most = __reduce_max_sync(0xffffffffu, most), least = __reduce_min_sync(0xffffffffu, least);
  if (lane == 0) highest[warp] = most, lowest[warp] = least;
  if (threadIdx.x == 0) chosen_count = kept_count = 0;
  if (__syncthreads_or(threadIdx.x < part_count && parts[threadIdx.x].broken)) {
    if (threadIdx.x == 0) to.broken = 1;
    return;
  }
  const Key high = (Key{__reduce_max_sync(0xffffffffu, highest[lane])} + 1) << 32;
  Key low = Key{__reduce_min_sync(0xffffffffu, lowest[lane])} << 32;

  low = reached_by(wanted_groups, bests, used, low, high, counts);
  int mine = 0;
#pragma unroll
  for (int i = 0; i < kGroupsEach; ++i) mine += bests[i] >= low;
  int at = place_in(&chosen_count, mine);
#pragma unroll
  for (int i = 0; i < kGroupsEach; ++i) {
    if (bests[i] >= low) chosen[at++] = i * kThreads + threadIdx.x;
  }
  __syncthreads();

  Key keys[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int place = i * kWarps + warp;
    const int token = place < wanted_groups ? chosen[place] * 32 + lane : vocab;
    keys[i] = token < vocab ? logit_key(from[token], token) : 0;
  }
  // Of few groups all logits may be wanted. Otherwise hardly more than wanted reach the groups'
  // limit, unless a few groups hold most of the best.
  if (wanted_groups < wanted) low = 1;
  mine = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) mine += keys[i] >= low;
  if (sum_of_block(mine, counts[0]) > kMostKept) {
    __syncthreads();
    low = reached_by(wanted, keys, kEach, low, high, counts);
    mine = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) mine += keys[i] >= low;
  }
  at = place_in(&kept_count, mine);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (keys[i] >= low) kept[at++] = keys[i];
  }
  __syncthreads();

  // Each key's place by counting, a pair of lanes a key.
  if (warp * 16 < kept_count) {
    const Key key = threadIdx.x / 2 < kept_count ? kept[threadIdx.x / 2] : 0;
    int place = 0;
#pragma unroll 8
    for (int i = threadIdx.x % 2; i < kept_count; i += 2) place += kept[i] > key;
    place += __shfl_xor_sync(0xffffffffu, place, 1);
    if (key && place < wanted && threadIdx.x % 2 == 0) {
      sorted[place] = {key_logit(key), key_token(key)};
    }
  }
  if (warp == kWarps - 1) {  // it has no key to place, as a rule
    float largest = -INFINITY;
    for (int i = lane; i < part_count; i += 32) largest = fmaxf(largest, parts[i].max);
    largest = max_of_warp(largest);
    double sum = 0, scaled = 0;
    for (int i = lane; i < part_count; i += 32) {
      const BestPart part = parts[i];
      if (part.max == -INFINITY) continue;
      sum += double(expf(part.max - largest)) * part.sums[0];
      scaled += double(expf((part.max - largest) * request.scale)) * part.sums[1];
    }
    sum = sum_of_warp(sum), scaled = sum_of_warp(scaled);
    if (lane == 0) to.broken = 0, to.count = wanted, to.sums[0] = sum, to.sums[1] = scaled;
  }
  __syncthreads();
  if (threadIdx.x < wanted) to.best[threadIdx.x] = sorted[threadIdx.x];  // side by side: they cross
}

}  // namespace

void TopLogitsFinder::reserve(int rows, int vocab) {
  const int parts = rows * ((vocab + kPart - 1) / kPart);
  if (rows > rows_room_) {
    rows_room_ = std::max(rows, 2 * rows_room_);
    requests_ = DeviceBuffer<RequestRow>(rows_room_);
    check(cudaFreeHost(answers_), "freeing memory");
    answers_ = nullptr;
    check(cudaMallocHost(&answers_, rows_room_ * sizeof(BestRow)), "pinning memory");
  }
  if (parts > parts_room_) {
    parts_room_ = std::max(parts, 2 * parts_room_);
    parts_ = DeviceBuffer<BestPart>(parts_room_);
    groups_ = DeviceBuffer<Key>(size_t(parts_room_) * kPartThreads);
  }
}

void TopLogitsFinder::queue(cudaStream_t stream, const float* logits, int vocab, int rows) const {
  const int parts = (vocab + kPart - 1) / kPart;
  launch_dependent(part_kernel, dim3(parts, rows), kPartThreads, 0, stream, logits, vocab,
                   requests_.data(), parts_.data(), groups_.data(), answers_);
  launch_dependent(best_kernel, dim3(rows), kThreads, 0, stream, logits, vocab, parts,
                   requests_.data(), parts_.data(), groups_.data(), answers_);
}

const std::vector<TopLogits>& TopLogitsFinder::find(cudaStream_t stream, const float* logits,
                                                    int vocab,
                                                    const std::vector<TopLogitsRequest>& requests) {
  if (vocab > kMostGroups * kGroup) throw Error("CUDA samples from at most {} tokens", 1 << 19);
  const int rows = int(requests.size());
  top_logits_.resize(requests.size());
  if (rows == 0) return top_logits_;
  reserve(rows, vocab);
  questions_.resize(requests.size());
  for (size_t row = 0; row < requests.size(); ++row) {
    const TopLogitsRequest& request = requests[row];
    RequestRow& question = questions_[row];
    question.scale = request.scale, question.count = std::clamp(request.count, 1, kMaxCandidates);
    question.token_count = std::min(int(request.tokens.size()), kMaxRequestedTokens);
    std::copy_n(request.tokens.begin(), question.token_count, question.tokens);
  }
  requests_.copy_from(questions_.data(), questions_.size(), stream);
  queue(stream, logits, vocab, rows);
  check(cudaStreamSynchronize(stream), "finding the best");
  for (size_t row = 0; row < requests.size(); ++row) {
    const BestRow& from = answers_[row];
    TopLogits& to = top_logits_[row];
    to.broken = from.broken;
    to.candidates.clear(), to.requested.clear();
    if (to.broken) continue;
    to.candidates.assign(from.best, from.best + from.count);
    to.log_sum = double(to.candidates[0].logit) + std::log(from.sums[0]);
    to.scaled = from.sums[1];
    to.requested.assign(from.logits, from.logits + questions_[row].token_count);
  }
  return top_logits_;
}

}  // namespace ridge::cuda
