#include <algorithm>

#include "engine/cuda/attention/dequantize_pages.cuh"
#include "engine/cuda/portable/attention.cuh"
#include "engine/cuda/portable/decode_attention_kernel.cuh"
#include "engine/cuda/portable/launch.cuh"
#include "engine/cuda/portable/prefill_attention_kernel.cuh"

namespace ridge::cuda {
namespace {

template <int kD, KvFormat kFormat>
void launch_decode_shape(cudaStream_t stream, dim3 grid, const PortableDecodeLaunch& launch) {
  constexpr int kShared = PortableDecode<kD, kFormat>::kSharedBytes;
  [[maybe_unused]] static const bool ready =
      allow_shared_memory(portable_decode_kernel<kD, kFormat>, kShared);
  launch_in_order(portable_decode_kernel<kD, kFormat>, grid, kPortableDecodeThreads, kShared,
                  stream, launch);
}

template <KvFormat kFormat>
void launch_decode_format(cudaStream_t stream, dim3 grid, const PortableDecodeLaunch& launch) {
  switch (launch.args.head_dim) {
    case 64:
      return launch_decode_shape<4, kFormat>(stream, grid, launch);
    case 128:
      return launch_decode_shape<8, kFormat>(stream, grid, launch);
    case 256:
      return launch_decode_shape<16, kFormat>(stream, grid, launch);
  }
  throw Error("attention: head_dim {} is not 64, 128 or 256", launch.args.head_dim);
}

void launch_decode(cudaStream_t stream, KvFormat format, int items,
                   const PortableDecodeLaunch& launch) {
  const dim3 grid(items, launch.args.kv_heads);
  switch (format) {
    case KvFormat::bf16:
      return launch_decode_format<KvFormat::bf16>(stream, grid, launch);
    case KvFormat::f16:
      return launch_decode_format<KvFormat::f16>(stream, grid, launch);
    case KvFormat::fp8:
      return launch_decode_format<KvFormat::fp8>(stream, grid, launch);
    case KvFormat::int8:
      return launch_decode_format<KvFormat::int8>(stream, grid, launch);
  }
}

template <int kHeadDim>
void launch_prefill_shape(cudaStream_t stream, int sms, const PrefillAttentionLaunch& launch) {
  constexpr int kShared = PortablePrefill<kHeadDim>::kSharedBytes;
  [[maybe_unused]] static const bool ready =
      allow_shared_memory(portable_prefill_kernel<kHeadDim>, kShared);
  launch_in_order(portable_prefill_kernel<kHeadDim>, dim3(sms), kPortablePrefillThreads, kShared,
                  stream, launch);
}

void launch_prefill(cudaStream_t stream, int sms, const PrefillAttentionLaunch& launch) {
  switch (launch.args.head_dim) {
    case 64:
      return launch_prefill_shape<64>(stream, sms, launch);
    case 128:
      return launch_prefill_shape<128>(stream, sms, launch);
    case 256:
      return launch_prefill_shape<256>(stream, sms, launch);
  }
  throw Error("attention: head_dim {} is not 64, 128 or 256", launch.args.head_dim);
}

// Per token: up to 8 of the heads that share a KV head, each.
int column_groups(int heads, int kv_heads) { return (heads / kv_heads + 7) / 8; }

// Splits of all tokens at most: n pages touch n / kPortableSplitPages + 2 at most.
size_t max_items(int heads, int kv_heads, const AttentionBounds& b) {
  return size_t(column_groups(heads, kv_heads)) *
         (size_t(b.context_pages) / kPortableSplitPages + 2 * size_t(b.sequences));
}

}  // namespace

PortableAttention::PortableAttention(int heads, int kv_heads, int head_dim, int sms,
                                     KvFormat format, std::vector<int> windows,
                                     const AttentionBounds& bounds)
    : heads_(heads),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      sms_(sms),
      format_(format),
      windows_(std::move(windows)),
      memory_(memory_bytes(heads, kv_heads, head_dim, format, bounds)),
      buffers_([&] {
        Workspace workspace(memory_.data());
        return Buffers(workspace, heads, kv_heads, head_dim, format, bounds);
      }()),
      prefill_pages_(bounds.cache_pages) {
  memory_.fill_bytes(0);
}

PortableAttention::Buffers::Buffers(Workspace& workspace, int heads, int kv_heads, int head_dim,
                                    KvFormat format, const AttentionBounds& bounds) {
  const size_t page = size_t(kv_heads) * page_elements(head_dim);
  dequantized = format == KvFormat::bf16
                    ? nullptr
                    : workspace.take<uint16_t>(size_t(bounds.cache_pages) * page);
  partials = workspace.take<float>(max_items(heads, kv_heads, bounds) * kv_heads *
                                   partial_record_size(head_dim));
  arrived = workspace.take<unsigned>(size_t(column_groups(heads, kv_heads)) * bounds.sequences *
                                     kv_heads);
}

size_t PortableAttention::memory_bytes(int heads, int kv_heads, int head_dim, KvFormat format,
                                       const AttentionBounds& bounds) {
  Workspace counted;
  Buffers(counted, heads, kv_heads, head_dim, format, bounds);
  return counted.bytes();
}

size_t PortableAttention::input_bytes(int heads, int kv_heads, int sms, size_t windows,
                                      const AttentionBounds& bounds) {
  const size_t tiles =
      size_t(kv_heads) *
      (size_t(bounds.tokens) * (heads / kv_heads) / kPrefillTileRows + size_t(bounds.sequences));
  return StepInputs::bytes_of<RopeRun>(max_rope_runs(bounds)) +
         StepInputs::bytes_of<PrefillTile>(tiles) + StepInputs::bytes_of<int>(size_t(sms) + 1) +
         StepInputs::bytes_of<int>(size_t(bounds.cache_pages)) +
         windows * StepInputs::bytes_of<PortableDecodeItem>(max_items(heads, kv_heads, bounds));
}

void PortableAttention::plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences,
                             const int* pages) {
  prefill_.clear(), decode_.clear(), runs_.clear();
  for (const AttentionSequence& s : sequences) {
    if (s.rows == 0) continue;
    (s.rows > 1 ? prefill_ : decode_).push_back(s);
    append_rope_runs(runs_, s);
  }
  run_count_ = int(runs_.size());
  device_runs_ = add_list(inputs, runs_);
  dequantize_count_ = 0;
  if (format_ != KvFormat::bf16) {
    const std::vector<int>& dequantized = prefill_pages_.of(prefill_, pages);
    dequantize_count_ = int(dequantized.size());
    device_dequantized_pages_ = add_list(inputs, dequantized);
  }
  device_tiles_ = nullptr;
  if (!prefill_.empty()) {
    plan_prefill_attention(prefill_, heads_, kv_heads_, head_dim_, sms_, prefill_plan_);
    device_tiles_ = add_list(inputs, prefill_plan_.tiles);
    device_tiles_begin_ = add_list(inputs, prefill_plan_.begin);
  }
  device_items_.clear();
  if (decode_.empty()) return;
  for (const int window : windows_) {
    items_.clear();
    int partials = 0, counters = 0;
    for (const AttentionSequence& s : decode_) plan_decode(s, window, partials, counters);
    device_items_.push_back({add_list(inputs, items_), int(items_.size())});
  }
}

void PortableAttention::plan_decode(const AttentionSequence& s, int window, int& partials,
                                    int& counters) {
  const int first = window > 0 ? std::max(0, s.past + 1 - window) / kPageTokens : 0;
  const int end = s.past / kPageTokens + 1;
  const int first_split = first / kPortableSplitPages;
  const int splits = (end - 1) / kPortableSplitPages + 1 - first_split;
  for (int column = 0; column < heads_ / kv_heads_; column += 8) {
    for (int i = 0; i < splits; ++i) {
      const int begin = (first_split + i) * kPortableSplitPages;
      items_.push_back({s.row,
                        s.past,
                        s.pages,
                        column,
                        std::max(first, begin),
                        std::min(end, begin + kPortableSplitPages),
                        i,
                        splits,
                        partials,
                        counters,
                        {}});
    }
    if (splits > 1) partials += splits * kv_heads_, counters += kv_heads_;
  }
}

void PortableAttention::rope_and_append(cudaStream_t stream, const AttentionArgs& args) {
  ridge::cuda::rope_and_append(
      stream, format_,
      {args.qkv, args.heads, args.kv_heads, args.head_dim, device_runs_, run_count_, args.q_norm,
       args.k_norm, args.eps, args.frequency, args.magnitude, args.kv_slots, args.q, args.kv});
  if (dequantize_count_ > 0) {
    dequantize_pages(stream, format_,
                     {args.kv, device_dequantized_pages_, dequantize_count_, args.kv_heads,
                      args.head_dim, buffers_.dequantized});
  }
}

void PortableAttention::launch(cudaStream_t stream, const AttentionArgs& args) {
  const int group = heads_ / kv_heads_;
  if (device_tiles_ != nullptr) {
    const bool bf16 = format_ == KvFormat::bf16;
    launch_prefill(stream, sms_,
                   {args, bf16 ? reinterpret_cast<const uint16_t*>(args.kv) : buffers_.dequantized,
                    args.pages, group, device_tiles_, device_tiles_begin_});
  }
  if (device_items_.empty()) return;
  const auto window = std::find(windows_.begin(), windows_.end(), args.window);
  if (window == windows_.end()) throw Error("attention: no plan for a window of {}", args.window);
  const Items& items = device_items_[size_t(window - windows_.begin())];
  launch_decode(stream, format_, items.count,
                {args, group, items.device, buffers_.partials, buffers_.arrived});
}

}  // namespace ridge::cuda
