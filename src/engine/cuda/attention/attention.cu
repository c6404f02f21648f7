#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "engine/cuda/attention/attention.cuh"
#include "engine/cuda/attention/attention_kernel.cuh"
#include "engine/cuda/attention/dequantize_pages.cuh"

namespace ridge::cuda {
namespace {

constexpr int kTileRows = 128, kSingleRows = 64;
// Of keys and values that the blocks at work share: of Hopper's 50 MB L2.
constexpr size_t kCacheBytes = size_t{32} << 20;
// What a tile of rows costs besides its keys, in tiles of keys: queries, the first tile's latency
// and the output.
constexpr int kTileCost = 1;

template <typename T>
bool grow(DeviceBuffer<T>& buffer, size_t count) {
  if (buffer.size() >= count) return false;
  buffer = DeviceBuffer<T>(std::max(count, 2 * buffer.size()));
  return true;
}

template <typename T>
void upload(cudaStream_t stream, DeviceBuffer<T>& buffer, const std::vector<T>& values) {
  if (values.empty()) return;
  grow(buffer, values.size());
  buffer.copy_from(values.data(), values.size(), stream);
}

template <int kHeadDim>
void launch_shape(cudaStream_t stream, int sms, const AttentionLaunch& launch) {
  using Shape = AttentionShape<kHeadDim>;
  static const bool ready = [] {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(attention<kHeadDim>),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes),
          "asking for shared memory");
    return true;
  }();
  (void)ready;
  launch_dependent(attention<kHeadDim>, dim3(sms), Shape::kThreads, Shape::kSharedBytes, stream,
                   launch);
}

void launch_prompts(cudaStream_t stream, int sms, const AttentionLaunch& launch) {
  switch (launch.args.head_dim) {
    case 64:
      return launch_shape<64>(stream, sms, launch);
    case 128:
      return launch_shape<128>(stream, sms, launch);
    case 256:
      return launch_shape<256>(stream, sms, launch);
  }
  throw Error("attention: head_dim {} is not 64, 128 or 256", launch.args.head_dim);
}

}  // namespace

Attention::Attention(int heads, int kv_heads, int head_dim, int sms, KvFormat format,
                     std::vector<int> windows)
    : heads_(heads),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      sms_(sms),
      format_(format),
      windows_(std::move(windows)) {
  if (heads % kv_heads != 0) {
    throw Error("attention: {} heads are no multiple of {} KV heads", heads, kv_heads);
  }
}

void Attention::plan(cudaStream_t stream, const std::vector<AttentionSequence>& sequences) {
  std::vector<AttentionSequence> prompts, singles;
  std::vector<RopeRun> runs;
  for (const AttentionSequence& s : sequences) {
    if (s.rows == 0) continue;
    (s.rows * (heads_ / kv_heads_) > kSingleRows ? prompts : singles).push_back(s);
    for (int i = 0; i < s.rows && s.rows > 1;) {
      const int count = std::min(s.rows - i, kPageTokens / 2 - (s.past + i) % (kPageTokens / 2));
      runs.push_back({s.row + i, count});
      i += count;
    }
  }
  turn_count_ = int(runs.size());
  upload(stream, turn_runs_, runs);
  unpack_count_ = 0;
  if (format_ != KvFormat::bf16) plan_unpacking(stream, prompts);
  plan_prompts(std::move(prompts));
  upload(stream, device_work_, work_);
  if (!work_.empty()) upload(stream, device_begin_, begin_);

  single_begin_.clear();
  if (singles.empty()) return;
  std::vector<DecodeItem> items;
  int records = 0, counters = 0;
  for (const int window : windows_) {
    const DecodePlan plan = plan_decode_attention(singles, heads_, kv_heads_, window, sms_);
    single_begin_.push_back(items.size());
    items.insert(items.end(), plan.items.begin(), plan.items.end());
    records = std::max(records, plan.records), counters = std::max(counters, plan.counters);
  }
  upload(stream, single_items_, items);
  grow(partial_, size_t(records) * partial_record_size(head_dim_));
  if (grow(arrived_, counters)) {
    check(cudaMemsetAsync(arrived_.data(), 0, arrived_.size() * sizeof(unsigned), stream),
          "filling");
  }
}

// Prompts then find their pages by these numbers.
void Attention::plan_unpacking(cudaStream_t stream, std::vector<AttentionSequence>& prompts) {
  std::vector<int> from, to;
  for (AttentionSequence& s : prompts) {
    const int pages = (s.past + s.rows + kPageTokens - 1) / kPageTokens;
    const int first = int(from.size());
    for (int page = 0; page < pages; ++page) from.push_back(s.pages + page);
    s.pages = first;
  }
  unpack_count_ = int(from.size());
  to.resize(from.size());
  std::iota(to.begin(), to.end(), 0);
  upload(stream, unpack_from_, from);
  upload(stream, unpack_to_, to);
  grow(unpacked_, from.size() * kv_heads_ * page_elements(head_dim_));
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
          blocks[load.second].push_back({s.row, s.rows, s.past, s.pages, tile, h});
          load.first += (keys + 127) / 128 + kTileCost;
          least.push(load);
        }
      }
    }
  }
  work_.clear();
  begin_.assign(1, 0);
  for (const std::vector<AttentionWork>& block : blocks) {
    work_.insert(work_.end(), block.begin(), block.end());
    begin_.push_back(int(work_.size()));
  }
}

void Attention::rope_and_append(cudaStream_t stream, const AttentionArgs& args) {
  ridge::cuda::rope_and_append(stream, format_,
                               {args.qkv, args.heads, args.kv_heads, args.head_dim,
                                turn_runs_.data(), turn_count_, args.q_norm, args.k_norm, args.eps,
                                args.frequency, args.magnitude, args.kv_slots, args.q, args.kv});
  if (unpack_count_ > 0) {
    dequantize_pages(stream, format_,
                     {args.kv, args.pages, unpack_from_.data(), unpack_count_, args.kv_heads,
                      args.head_dim, unpacked_.data()});
  }
}

void Attention::launch(cudaStream_t stream, const AttentionArgs& args) {
  if (!work_.empty()) {
    const bool plain = format_ == KvFormat::bf16;
    launch_prompts(stream, sms_,
                   {args, plain ? reinterpret_cast<const uint16_t*>(args.kv) : unpacked_.data(),
                    plain ? args.pages : unpack_to_.data(), heads_ / kv_heads_, device_work_.data(),
                    device_begin_.data()});
  }
  if (single_begin_.empty()) return;
  const auto window = std::find(windows_.begin(), windows_.end(), args.window);
  if (window == windows_.end()) throw Error("attention: no plan for a window of {}", args.window);
  launch_decode_attention(stream, sms_,
                          {args, format_, heads_ / kv_heads_,
                           single_items_.data() + single_begin_[size_t(window - windows_.begin())],
                           partial_.data(), arrived_.data()});
}

}  // namespace ridge::cuda
