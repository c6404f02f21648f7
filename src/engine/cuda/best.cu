#include <algorithm>
#include <cmath>

#include "engine/cuda/best.cuh"
#include "engine/cuda/scalar.cuh"

namespace ridge::cuda {
namespace {

using Key = unsigned long long;  // of key_of: never 0, which stands for no logit

constexpr int kGroup = 32, kPartThreads = 256;  // logits of a thread, threads of a part
constexpr int kPart = kGroup * kPartThreads;
constexpr int kThreads = 1024, kWarps = kThreads / 32;
static_assert(kMostBest <= kPartThreads && kMostAsked <= kPartThreads);
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

// A block a part of a row: its sums, and the best key of each thread's logits.
__global__ void __launch_bounds__(kPartThreads)
    part_kernel(const float* logits, int vocab, const AskRow* asks, BestPart* parts, Key* groups,
                BestRow* found) {
  __shared__ float of_warps[3][kPartThreads / 32];
  let_next_begin();
  after_previous();
  const int row = blockIdx.y, part = row * gridDim.x + blockIdx.x;
  const int begin = blockIdx.x * kPart + threadIdx.x, warp = threadIdx.x / 32;
  const AskRow& ask = asks[row];
  const float* from = logits + size_t(row) * vocab;
  float values[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const int at = begin + i * kPartThreads;
    values[i] = at < vocab ? from[at] : -INFINITY;
  }
  float most = -INFINITY;
  int first = begin;  // the first of equals
  bool broken = false;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    broken |= !(values[i] < INFINITY);
    if (values[i] > most) most = values[i], first = begin + i * kPartThreads;
  }
  groups[size_t(part) * kPartThreads + threadIdx.x] = begin < vocab ? key_of(most, first) : 0;

  most = max_of_warp(most);
  if (threadIdx.x % 32 == 0) of_warps[0][warp] = most;
  broken = __syncthreads_or(broken);
  most = max_of_warp(of_warps[0][threadIdx.x % (kPartThreads / 32)]);
  float sum = 0, scaled = 0;
  if (most > -INFINITY) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      sum += expf(values[i] - most);
      scaled += expf((values[i] - most) * ask.scale);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < ask.token_count) {
    found[row].logits[threadIdx.x] = from[ask.tokens[threadIdx.x]];
  }
  sum = sum_of_warp(sum), scaled = sum_of_warp(scaled);
  if (threadIdx.x % 32 == 0) of_warps[1][warp] = sum, of_warps[2][warp] = scaled;
  __syncthreads();
  if (threadIdx.x > 0) return;
  BestPart left = {most, {0, 0}, broken};
  for (int w = 0; w < kPartThreads / 32; ++w) {
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
// `low`, and fewer reach `high`. Thread's keys from `used` on are none.
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

// A block a row. The n best logits lie in the n groups whose best are best: these groups alone are
// looked at, a lane a logit. (A row of at least n logits has n groups, for n up to kPartThreads.)
__global__ void __launch_bounds__(kThreads)
    best_kernel(const float* logits, int vocab, int part_count, const AskRow* asks,
                const BestPart* parts, const Key* groups, BestRow* found) {
  constexpr int kEach = kMostBest * kGroup / kThreads;
  __shared__ int counts[2][kWarps], chosen[kMostBest], chosen_count, kept_count;
  __shared__ Key kept[kMostKept], highest[kWarps], lowest[kWarps];
  let_next_begin();
  after_previous();
  const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* from = logits + size_t(row) * vocab;
  const AskRow& ask = asks[row];
  BestRow& to = found[row];
  parts += row * part_count;
  const int group_count = part_count * kPartThreads, used = (group_count + kThreads - 1) / kThreads;
  const int count = min(ask.count, vocab);
  Key bests[kMostGroups / kThreads];
  Key high = 0, low = ~Key{0};
  groups += size_t(row) * group_count;
#pragma unroll
  for (int i = 0; i < kMostGroups / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x;
    bests[i] = at < group_count ? groups[at] : 0;
    high = max(high, bests[i]);
    if (bests[i]) low = min(low, bests[i]);
  }
  if (threadIdx.x == 0) chosen_count = kept_count = 0;
  if (__syncthreads_or(threadIdx.x < part_count && parts[threadIdx.x].broken)) {
    if (threadIdx.x == 0) to.broken = 1;
    return;
  }
  for (int across = 16; across; across /= 2) {
    high = max(high, __shfl_xor_sync(0xffffffffu, high, across));
    low = min(low, __shfl_xor_sync(0xffffffffu, low, across));
  }
  if (lane == 0) highest[warp] = high, lowest[warp] = low;
  __syncthreads();
  high = highest[lane], low = lowest[lane];
  for (int across = 16; across; across /= 2) {
    high = max(high, __shfl_xor_sync(0xffffffffu, high, across));
    low = min(low, __shfl_xor_sync(0xffffffffu, low, across));
  }

  low = reached_by(count, bests, used, low, high + 1, counts);
#pragma unroll
  for (int i = 0; i < kMostGroups / kThreads; ++i) {
    if (i == used) break;
    if (bests[i] >= low) {
      chosen[atomicAdd(&chosen_count, 1)] = i * kThreads + threadIdx.x;
    }
  }
  __syncthreads();

  Key keys[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    keys[i] = 0;
    const int place = i * kWarps + warp;
    if (place >= chosen_count) continue;
    const int group = chosen[place];
    const int at = group / kPartThreads * kPart + group % kPartThreads + lane * kPartThreads;
    if (at < vocab) keys[i] = key_of(from[at], at);
  }
  // Hardly more than `count` reach the groups' limit, unless few groups hold most of the best.
  int reaching = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) reaching += keys[i] >= low;
  if (sum_of_block(reaching, counts[0]) > kMostKept) {
    __syncthreads();
    low = reached_by(count, keys, kEach, low, high + 1, counts);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (keys[i] >= low) kept[atomicAdd(&kept_count, 1)] = keys[i];
  }
  __syncthreads();
  if (warp == kWarps - 1) {  // it has no key to place, as a rule
    float most = -INFINITY;
    for (int i = lane; i < part_count; i += 32) most = fmaxf(most, parts[i].max);
    most = max_of_warp(most);
    double sum = 0, scaled = 0;
    for (int i = lane; i < part_count; i += 32) {
      const BestPart part = parts[i];
      if (part.max == -INFINITY) continue;
      sum += double(expf(part.max - most)) * part.sums[0];
      scaled += double(expf((part.max - most) * ask.scale)) * part.sums[1];
    }
    sum = sum_of_warp(sum), scaled = sum_of_warp(scaled);
    if (lane == 0) to.broken = 0, to.count = count, to.sums[0] = sum, to.sums[1] = scaled;
  }
  // Each key's place by counting, a pair of lanes a key.
  const Key key = threadIdx.x / 2 < kept_count ? kept[threadIdx.x / 2] : 0;
  int place = 0;
#pragma unroll 8
  for (int i = threadIdx.x % 2; i < kept_count; i += 2) place += kept[i] > key;
  place += __shfl_xor_sync(0xffffffffu, place, 1);
  if (key && place < count && threadIdx.x % 2 == 0) {
    to.best[place] = {logit_of(key), index_of(key)};
  }
}

}  // namespace

void BestFinder::reserve(int rows, int vocab) {
  const int parts = rows * ((vocab + kPart - 1) / kPart);
  if (rows > rows_room_) {
    rows_room_ = std::max(rows, 2 * rows_room_);
    asks_ = Buffer<AskRow>(rows_room_);
    found_ = Buffer<BestRow>(rows_room_);
    check(cudaFreeHost(answers_), "freeing memory");
    answers_ = nullptr;
    check(cudaMallocHost(&answers_, rows_room_ * sizeof(BestRow)), "pinning memory");
  }
  if (parts > parts_room_) {
    parts_room_ = std::max(parts, 2 * parts_room_);
    parts_ = Buffer<BestPart>(parts_room_);
    groups_ = Buffer<Key>(size_t(parts_room_) * kPartThreads);
  }
}

void BestFinder::queue(cudaStream_t stream, const float* logits, int vocab, int rows) const {
  const int parts = (vocab + kPart - 1) / kPart;
  launch_dependent(part_kernel, dim3(parts, rows), kPartThreads, 0, stream, logits, vocab,
                   asks_.data(), parts_.data(), groups_.data(), found_.data());
  launch_dependent(best_kernel, dim3(rows), kThreads, 0, stream, logits, vocab, parts, asks_.data(),
                   parts_.data(), groups_.data(), found_.data());
}

const std::vector<Best>& BestFinder::find(cudaStream_t stream, const float* logits, int vocab,
                                          const std::vector<Ask>& asks) {
  if (vocab > kMostGroups * kGroup) throw Error("CUDA samples from at most {} tokens", 1 << 19);
  const int rows = int(asks.size());
  best_.resize(asks.size());
  if (rows == 0) return best_;
  reserve(rows, vocab);
  questions_.resize(asks.size());
  for (size_t row = 0; row < asks.size(); ++row) {
    const Ask& ask = asks[row];
    AskRow& question = questions_[row];
    question.scale = ask.scale, question.count = std::clamp(ask.count, 1, kMostBest);
    question.token_count = std::min(int(ask.tokens.size()), kMostAsked);
    std::copy_n(ask.tokens.begin(), question.token_count, question.tokens);
  }
  asks_.copy_from(questions_.data(), questions_.size(), stream);
  queue(stream, logits, vocab, rows);
  check(cudaMemcpyAsync(answers_, found_.data(), rows * sizeof(BestRow), cudaMemcpyDeviceToHost,
                        stream),
        "copying the best");
  check(cudaStreamSynchronize(stream), "finding the best");
  for (size_t row = 0; row < asks.size(); ++row) {
    const BestRow& from = answers_[row];
    Best& to = best_[row];
    to.broken = from.broken;
    to.best.clear(), to.asked.clear();
    if (to.broken) continue;
    to.best.assign(from.best, from.best + from.count);
    to.log_sum = double(to.best[0].logit) + std::log(from.sums[0]);
    to.scaled = from.sums[1];
    to.asked.assign(from.logits, from.logits + questions_[row].token_count);
  }
  return best_;
}

}  // namespace ridge::cuda
