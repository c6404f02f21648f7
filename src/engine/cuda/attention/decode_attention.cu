#include <algorithm>
#include <functional>
#include <tuple>

#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/attention/decode_attention_kernel.cuh"

namespace ridge::cuda {
namespace {

static_assert(kQueryColumns == kDecodeItemColumns);
static_assert(kAttentionWarps == kMaxItemParts);
constexpr int kItemCost = 2;  // of an item besides its pages, in pages: combining the warps' states
constexpr int kMinPartPages = 4;  // a stage has up to 4 pages, and every part needs a stage

template <int kD, KvFormat kFormat>
void launch_shape(cudaStream_t stream, int sms, const DecodeAttentionLaunch& launch) {
  constexpr int kShared = DecodeAttentionShape<kD, kFormat>::kSharedBytes;
  [[maybe_unused]] static const bool ready =
      allow_shared_memory(decode_attention_kernel<kD, kFormat>, kShared);
  launch_dependent(decode_attention_kernel<kD, kFormat>, dim3(sms), kDecodeAttentionThreads,
                   kShared, stream, launch);
}

template <KvFormat kFormat>
void launch_format(cudaStream_t stream, int sms, const DecodeAttentionLaunch& launch) {
  switch (launch.args.head_dim) {
    case 64:
      return launch_shape<4, kFormat>(stream, sms, launch);
    case 128:
      return launch_shape<8, kFormat>(stream, sms, launch);
    case 256:
      return launch_shape<16, kFormat>(stream, sms, launch);
  }
  throw Error("attention: head_dim {} is not 64, 128 or 256", launch.args.head_dim);
}

int records_of(const DecodeItem& item) { return item.log2_parts > 0 ? kMaxItemParts : 1; }

// The items of all sequences for one KV head, in at most 2^max_log2_parts parts, and the space of
// all heads' partial results.
void cut_items(const std::vector<AttentionSequence>& sequences, int group, int kv_heads, int window,
               int max_log2_parts, std::vector<DecodeItem>& items) {
  int partials = 0, counters = 0;
  items.clear();
  for (const AttentionSequence& s : sequences) {
    for (int column = 0; column < s.rows * group; column += kQueryColumns) {
      const int oldest = s.past + column / group;  // positions of the first and last token
      const int newest = s.past + (std::min(column + kQueryColumns, s.rows * group) - 1) / group;
      const int begin = window > 0 ? std::max(0, oldest + 1 - window) / kPageTokens : 0;
      const int pages = newest / kPageTokens + 1 - begin;
      const int splits = (pages + kMaxSplitPages - 1) / kMaxSplitPages;
      const int split_pages = (pages + splits - 1) / splits;
      const int last_pages = pages - (splits - 1) * split_pages;
      int log2_parts = max_log2_parts;
      while (log2_parts > 0 && last_pages < kMinPartPages << log2_parts) --log2_parts;
      const int parts = 1 << log2_parts;
      for (int i = 0; i < splits * parts; ++i) {
        const int split = i / parts, first = split * split_pages;
        items.push_back({s.row, s.rows, s.past, s.pages, 0, column, begin + first,
                         std::min(split_pages, pages - first), split, splits, partials, counters,
                         i % parts, log2_parts, s.first});
      }
      if (splits * parts > 1) {
        partials += splits * records_of(items.back()) * kv_heads, counters += kv_heads;
      }
    }
  }
}

// As many parts as SMs allow, or one: parts must save more time than writing and combining their
// states costs. Items of 64 pages, in a step: 8 parts saved gemma-3-12b (heads of 256) 6 % and
// qwen3-30b-a3b (128) 4 %, 2 parts saved gemma 3 %; 2 or 4 parts cost qwen 1 %.
int log2_parts_for(const std::vector<DecodeItem>& items, int kv_heads, int head_dim, int sms) {
  constexpr int kMinSavedElements = 7000;  // pages x head_dim that a block need not read
  const size_t count = items.size() * size_t(kv_heads), most = std::min(sms, kMaxPartItems);
  int log2 = 0, pages = kMaxSplitPages;
  while (1 << log2 < kMaxItemParts && count << (log2 + 1) <= most) ++log2;
  for (const DecodeItem& item : items) pages = std::min(pages, item.page_count);
  const int elements = pages * head_dim;
  return elements - (elements >> log2) < kMinSavedElements ? 0 : log2;
}

}  // namespace

// Longest items first, each to the block with the least work so far.
void plan_decode_attention(const std::vector<AttentionSequence>& sequences, int heads, int kv_heads,
                           int head_dim, int window, int sms, DecodePlan& plan) {
  const auto cut = [&](int max_log2_parts) {
    cut_items(sequences, heads / kv_heads, kv_heads, window, max_log2_parts, plan.head_items);
  };
  cut(0);
  const int log2_parts = log2_parts_for(plan.head_items, kv_heads, head_dim, sms);
  if (log2_parts > 0) cut(log2_parts);
  std::sort(plan.head_items.begin(), plan.head_items.end(),
            [](const DecodeItem& a, const DecodeItem& b) {
              if (a.page_count != b.page_count) return a.page_count > b.page_count;
              return std::tie(a.row, a.column, a.split, a.part) <
                     std::tie(b.row, b.column, b.split, b.part);
            });
  const int max_rounds = max_decode_rounds(plan.head_items.size() * size_t(kv_heads), sms);
  using Load = DecodePlan::Load;
  plan.loads.clear();
  for (int b = 0; b < sms; ++b) plan.loads.push_back({0, b, 0});  // in order, which is a heap
  plan.items.assign(size_t(sms), {});
  for (DecodeItem item : plan.head_items) {
    const int partial = item.partial, counter = item.counter;
    for (int h = 0; h < kv_heads; ++h) {
      item.kv_head = h;
      item.partial = partial + h * item.splits * records_of(item), item.counter = counter + h;
      std::pop_heap(plan.loads.begin(), plan.loads.end(), std::greater<Load>());
      Load& load = plan.loads.back();
      const size_t slot = size_t(load.rounds) * sms + load.block;
      load.pages += (item.page_count >> item.log2_parts) + kItemCost, ++load.rounds;
      if (plan.items.size() < size_t(load.rounds + 1) * sms) {
        plan.items.resize(size_t(load.rounds + 1) * sms);
      }
      plan.items[slot] = item;
      if (load.rounds == max_rounds) {
        plan.loads.pop_back();
      } else {
        std::push_heap(plan.loads.begin(), plan.loads.end(), std::greater<Load>());
      }
    }
  }
}

void launch_decode_attention(cudaStream_t stream, int sms, const DecodeAttentionLaunch& launch) {
  switch (launch.format) {
    case KvFormat::bf16:
      return launch_format<KvFormat::bf16>(stream, sms, launch);
    case KvFormat::f16:
      return launch_format<KvFormat::f16>(stream, sms, launch);
    case KvFormat::fp8:
      return launch_format<KvFormat::fp8>(stream, sms, launch);
    case KvFormat::int8:
      return launch_format<KvFormat::int8>(stream, sms, launch);
  }
}

}  // namespace ridge::cuda
