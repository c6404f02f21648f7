#include <algorithm>
#include <functional>
#include <tuple>

#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/attention/decode_attention_kernel.cuh"

namespace ridge::cuda {
namespace {

static_assert(kQueryColumns == kDecodeItemColumns);
constexpr int kItemCost = 2;  // of an item besides its pages, in pages: combining the warps' states

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

// The items of all sequences for one KV head, and the space of all heads' partial results.
void cut_items(const std::vector<AttentionSequence>& sequences, int group, int kv_heads, int window,
               std::vector<DecodeItem>& items) {
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
      for (int split = 0; split < splits; ++split) {
        const int first = split * split_pages, count = std::min(split_pages, pages - first);
        items.push_back({s.row, s.rows, s.past, s.pages, 0, column, begin + first, count, split,
                         splits, partials, counters});
      }
      if (splits > 1) partials += splits * kv_heads, counters += kv_heads;
    }
  }
}

}  // namespace

// Longest items first, each to the block with the least work so far.
void plan_decode_attention(const std::vector<AttentionSequence>& sequences, int heads, int kv_heads,
                           int window, int sms, DecodePlan& plan) {
  cut_items(sequences, heads / kv_heads, kv_heads, window, plan.head_items);
  std::sort(plan.head_items.begin(), plan.head_items.end(),
            [](const DecodeItem& a, const DecodeItem& b) {
              if (a.page_count != b.page_count) return a.page_count > b.page_count;
              return std::tie(a.row, a.column, a.split) < std::tie(b.row, b.column, b.split);
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
      item.partial = partial + h * item.splits, item.counter = counter + h;
      std::pop_heap(plan.loads.begin(), plan.loads.end(), std::greater<Load>());
      Load& load = plan.loads.back();
      const size_t slot = size_t(load.rounds) * sms + load.block;
      load.pages += item.page_count + kItemCost, ++load.rounds;
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
