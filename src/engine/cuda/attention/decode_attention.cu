#include <algorithm>
#include <functional>
#include <queue>

#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/attention/decode_attention_kernel.cuh"

namespace ridge::cuda {
namespace {

constexpr int kMostPages = 128;  // of a span
// What an item costs besides its pages, in pages: joining the warps' states.
constexpr int kItemCost = 2;

template <int kD, KvFormat kFormat>
void launch_shape(cudaStream_t stream, int sms, const DecodeAttentionLaunch& launch) {
  constexpr int kShared = SingleShape<kD, kFormat>::kSharedBytes;
  static const bool ready = [] {
    check(cudaFuncSetAttribute(single_kernel<kD, kFormat>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
          "asking for shared memory");
    return true;
  }();
  static_cast<void>(ready);
  launch_dependent(single_kernel<kD, kFormat>, dim3(sms), kSingleThreads, kShared, stream, launch);
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

}  // namespace

// Longest first, each to the block that has the least to do.
DecodePlan plan_decode_attention(const std::vector<AttentionSequence>& sequences, int heads,
                                 int kv_heads, int window, int sms) {
  const int group = heads / kv_heads;
  DecodePlan plan;
  std::vector<DecodeItem> items;
  for (const AttentionSequence& s : sequences) {
    for (int column = 0; column < s.rows * group; column += kColumns) {
      const int oldest = s.past + column / group;  // positions of the first and last token
      const int newest = s.past + (std::min(column + kColumns, s.rows * group) - 1) / group;
      const int begin = window > 0 ? std::max(0, oldest + 1 - window) / kPageTokens : 0;
      const int pages = newest / kPageTokens + 1 - begin;
      const int spans = (pages + kMostPages - 1) / kMostPages, each = (pages + spans - 1) / spans;
      for (int span = 0; span < spans; ++span) {
        const int first = span * each, count = std::min(each, pages - first);
        items.push_back({s.row, s.rows, s.past, s.pages, 0, column, begin + first, count, span,
                         spans, plan.records, plan.counters});
      }
      if (spans > 1) plan.records += spans * kv_heads, plan.counters += kv_heads;
    }
  }
  std::stable_sort(items.begin(), items.end(), [](const DecodeItem& a, const DecodeItem& b) {
    return a.page_count > b.page_count;
  });
  struct Load {
    int pages, block, rounds;
    bool operator>(const Load& other) const {
      return pages != other.pages ? pages > other.pages : block > other.block;
    }
  };
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> least;
  for (int b = 0; b < sms; ++b) least.push({0, b, 0});
  plan.items.reserve(items.size() * kv_heads + 3 * size_t(sms));
  plan.items.resize(size_t(sms));
  for (DecodeItem item : items) {
    const int record = item.record, counter = item.counter;
    for (int h = 0; h < kv_heads; ++h) {
      item.kv_head = h;
      item.record = record + h * item.spans, item.counter = counter + h;
      Load load = least.top();
      least.pop();
      if (plan.items.size() < size_t(load.rounds + 2) * sms) {
        plan.items.resize(size_t(load.rounds + 2) * sms);
      }
      plan.items[size_t(load.rounds) * sms + load.block] = item;
      load.pages += item.page_count + kItemCost, ++load.rounds;
      least.push(load);
    }
  }
  return plan;
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
