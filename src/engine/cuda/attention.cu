#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "engine/cuda/attention.cuh"
#include "engine/cuda/attention_kernel.cuh"

namespace ridge::cuda {
namespace {

constexpr int kTileRows = 128, kSingleRows = 64;
// Of keys and values that the blocks at work share: of Hopper's 50 MB L2.
constexpr size_t kCacheBytes = size_t{32} << 20;
// What a tile of rows costs besides its keys, in tiles of keys: queries, the first tile's latency
// and the output.
constexpr int kTileCost = 1;

template <typename T>
bool grow(Buffer<T>& buffer, size_t count) {
  if (buffer.size() >= count) return false;
  buffer = Buffer<T>(std::max(count, 2 * buffer.size()));
  return true;
}

template <int kHeadDim, int kGroups>
void launch_shape(cudaStream_t stream, int sms, const AttentionLaunch& launch) {
  using Shape = AttentionShape<kHeadDim, kGroups>;
  static const bool ready = [] {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(attention<kHeadDim, kGroups>),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes),
          "asking for shared memory");
    return true;
  }();
  (void)ready;
  const int blocks =
      Shape::kPrompts ? sms : std::min(launch.items * launch.args.kv_heads, sms * Shape::kBlocks);
  launch_dependent(attention<kHeadDim, kGroups>, dim3(blocks), Shape::kThreads, Shape::kSharedBytes,
                   stream, launch);
}

template <int kGroups>
void launch_groups(cudaStream_t stream, int sms, const AttentionLaunch& launch) {
  switch (launch.args.head_dim) {
    case 64:
      return launch_shape<64, kGroups>(stream, sms, launch);
    case 128:
      return launch_shape<128, kGroups>(stream, sms, launch);
    case 256:
      return launch_shape<256, kGroups>(stream, sms, launch);
  }
  throw Error("attention: head_dim {} is not 64, 128 or 256", launch.args.head_dim);
}

}  // namespace

Attention::Attention(int heads, int kv_heads, int head_dim, int sms)
    : heads_(heads), kv_heads_(kv_heads), head_dim_(head_dim), sms_(sms) {
  if (heads % kv_heads != 0) {
    throw Error("attention: {} heads are no multiple of {} KV heads", heads, kv_heads);
  }
}

void Attention::plan(cudaStream_t stream, const std::vector<AttentionSequence>& sequences) {
  std::vector<AttentionSequence> prompts, singles;
  for (const AttentionSequence& s : sequences) {
    if (s.rows == 0) continue;
    (s.rows * (heads_ / kv_heads_) > kSingleRows ? prompts : singles).push_back(s);
  }
  work_.clear();
  plan_prompts(std::move(prompts));
  plan_singles(stream, singles);
  grow(device_work_, work_.size());
  device_work_.copy_from(work_.data(), work_.size(), stream);
  if (prompt_items_ > 0) {
    grow(device_begin_, begin_.size());
    device_begin_.copy_from(begin_.data(), begin_.size(), stream);
  }
}

// Longest first. KV heads are taken in turns of as many as L2 holds; of those, late tiles, which
// have the most keys, come first. Each goes to the block that has the least to do.
void Attention::plan_prompts(std::vector<AttentionSequence> prompts) {
  const int group = heads_ / kv_heads_;
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const AttentionSequence& a, const AttentionSequence& b) {
                     return a.past + a.rows > b.past + b.rows;
                   });
  using Load = std::pair<long, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> least;
  for (int b = 0; b < sms_; ++b) least.push({0, b});
  std::vector<std::vector<AttentionWork>> blocks(sms_);
  prompt_items_ = 0;
  for (const AttentionSequence& s : prompts) {
    const size_t bytes = size_t(s.past + s.rows) * head_dim_ * 4;
    const int turns = std::min(kv_heads_, int(bytes * kv_heads_ / kCacheBytes) + 1);
    const int tiles = (s.rows * group + kTileRows - 1) / kTileRows;
    for (int turn = 0; turn < turns; ++turn) {
      for (int tile = tiles - 1; tile >= 0; --tile) {
        const int keys = s.past + std::min(s.rows, ((tile + 1) * kTileRows - 1) / group + 1);
        for (int h = turn * kv_heads_ / turns; h < (turn + 1) * kv_heads_ / turns; ++h) {
          Load load = least.top();
          least.pop();
          blocks[load.second].push_back({s.row, s.rows, s.past, s.pages, tile, h, 0, 0});
          load.first += (keys + 127) / 128 + kTileCost;
          least.push(load);
          ++prompt_items_;
        }
      }
    }
  }
  begin_.assign(1, 0);
  for (const std::vector<AttentionWork>& block : blocks) {
    work_.insert(work_.end(), block.begin(), block.end());
    begin_.push_back(int(work_.size()));
  }
}

// Whole spans first.
void Attention::plan_singles(cudaStream_t stream, const std::vector<AttentionSequence>& singles) {
  const int group = heads_ / kv_heads_;
  std::vector<AttentionWork> rest;
  size_t rows = 0, counters = 0;
  span_items_ = 0;
  for (const AttentionSequence& s : singles) {
    const int keys = s.past + s.rows, spans = (keys + kSpan - 1) / kSpan;
    for (int span = 0; span < spans; ++span) {
      const AttentionWork work = {s.row, s.rows, s.past,    s.pages,
                                  span,  0,      int(rows), int(counters)};
      if ((span + 1) * kSpan <= keys) {
        work_.push_back(work);
      } else {
        rest.push_back(work);
      }
    }
    span_items_ += spans;
    if (spans > 1) {
      rows += size_t(spans) * kv_heads_ * s.rows * group;
      counters += kv_heads_;
    }
  }
  std::stable_sort(rest.begin(), rest.end(), [](const AttentionWork& a, const AttentionWork& b) {
    return (a.past + a.rows) % kSpan > (b.past + b.rows) % kSpan;
  });
  work_.insert(work_.end(), rest.begin(), rest.end());
  grow(partial_, rows * head_dim_);
  grow(partial_sums_, rows);
  if (grow(arrived_, counters * kJoiners)) {
    check(cudaMemsetAsync(arrived_.data(), 0, arrived_.size() * sizeof(unsigned), stream),
          "filling");
  }
}

void Attention::launch(cudaStream_t stream, const AttentionArgs& args) {
  AttentionLaunch launch = {args,
                            heads_ / kv_heads_,
                            kv_heads_,
                            device_work_.data(),
                            device_begin_.data(),
                            0,
                            partial_.data(),
                            partial_sums_.data(),
                            arrived_.data()};
  if (prompt_items_ > 0) launch_groups<2>(stream, sms_, launch);
  launch.work += prompt_items_;
  launch.items = span_items_;
  if (span_items_ > 0) launch_groups<1>(stream, sms_, launch);
}

}  // namespace ridge::cuda
