#include <algorithm>
#include <utility>

#include "engine/cuda/attention/attention.cuh"
#include "engine/cuda/attention/dequantize_pages.cuh"

namespace ridge::cuda {
namespace {

// The longest lists that a step within the bounds may need. `group`: query heads per KV head.

size_t max_prefill_tiles(int group, int kv_heads, const AttentionBounds& b) {
  return size_t(kv_heads) * (size_t(b.tokens) * group / kPrefillTileRows + size_t(b.sequences));
}
// Groups of columns of decode attention, for one KV head. A sequence has at most kMaxColumnGroups.
constexpr size_t kMaxColumnGroups = kMaxDecodeRows / kDecodeItemColumns;
size_t max_column_groups(int group, const AttentionBounds& b) {
  return size_t(b.tokens) * group / kDecodeItemColumns + size_t(b.sequences);
}
size_t max_decode_items(int group, int kv_heads, const AttentionBounds& b) {
  const size_t further_splits = size_t(b.context_pages) / kMaxSplitPages * kMaxColumnGroups;
  return size_t(kv_heads) * (max_column_groups(group, b) + further_splits);
}
// Only sequences of several splits have partials: n > kMaxSplitPages pages are in at most
// 2 n / kMaxSplitPages splits, and in at most n / kMaxSplitPages + 1. A plan with parts has at most
// kMaxPartItems / 2 items.
size_t max_partials(int group, int kv_heads, const AttentionBounds& b) {
  const size_t whole = (size_t(b.context_pages) / kMaxSplitPages + 1) * kMaxColumnGroups;
  const size_t of_splits =
      size_t(kv_heads) * (whole + std::min(whole, max_column_groups(group, b)));
  const size_t items = std::min(max_decode_items(group, kv_heads, b), size_t(kMaxPartItems) / 2);
  return std::max(of_splits, items * kMaxItemParts);
}

}  // namespace

Attention::Attention(int heads, int kv_heads, int head_dim, int sms, KvFormat format,
                     std::vector<int> windows, const AttentionBounds& bounds)
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
  if (heads % kv_heads != 0) {
    throw Error("attention: {} heads are no multiple of {} KV heads", heads, kv_heads);
  }
  memory_.fill_bytes(0);
}

Attention::Buffers::Buffers(Workspace& workspace, int heads, int kv_heads, int head_dim,
                            KvFormat format, const AttentionBounds& bounds) {
  const size_t page = size_t(kv_heads) * page_elements(head_dim);
  dequantized = format == KvFormat::bf16
                    ? nullptr
                    : workspace.take<uint16_t>(size_t(bounds.cache_pages) * page);
  partials = workspace.take<float>(max_partials(heads / kv_heads, kv_heads, bounds) *
                                   partial_record_size(head_dim));
  arrived =
      workspace.take<unsigned>(size_t(kv_heads) * max_column_groups(heads / kv_heads, bounds));
}

size_t Attention::memory_bytes(int heads, int kv_heads, int head_dim, KvFormat format,
                               const AttentionBounds& bounds) {
  Workspace counted;
  Buffers(counted, heads, kv_heads, head_dim, format, bounds);
  return counted.bytes();
}

size_t Attention::input_bytes(int heads, int kv_heads, int sms, size_t windows,
                              const AttentionBounds& bounds) {
  const int group = heads / kv_heads;
  const size_t items = max_decode_plan(max_decode_items(group, kv_heads, bounds), sms);
  return StepInputs::bytes_of<RopeRun>(max_rope_runs(bounds)) +
         StepInputs::bytes_of<PrefillTile>(max_prefill_tiles(group, kv_heads, bounds)) +
         StepInputs::bytes_of<int>(size_t(sms) + 1) +
         StepInputs::bytes_of<int>(size_t(bounds.cache_pages)) +
         windows * StepInputs::bytes_of<DecodeItem>(items);
}

void Attention::plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences,
                     const int* pages) {
  prefill_.clear(), decode_.clear(), runs_.clear();
  for (const AttentionSequence& s : sequences) {
    if (s.rows == 0) continue;
    (s.rows * (heads_ / kv_heads_) > kMaxDecodeRows ? prefill_ : decode_).push_back(s);
    if (s.rows > 1) append_rope_runs(runs_, s);
  }
  rope_count_ = int(runs_.size());
  device_runs_ = add_list(inputs, runs_);
  dequantize_count_ = 0;
  if (format_ != KvFormat::bf16) {
    const std::vector<int>& dequantized = prefill_pages_.of(prefill_, pages);
    dequantize_count_ = int(dequantized.size());
    device_dequantized_pages_ = add_list(inputs, dequantized);
  }
  plan_prefill(inputs);
  plan_decode(inputs);
}

void Attention::plan_prefill(StepInputs& inputs) {
  device_tiles_ = nullptr;
  if (prefill_.empty()) return;
  plan_prefill_attention(prefill_, heads_, kv_heads_, head_dim_, sms_, prefill_plan_);
  device_tiles_ = add_list(inputs, prefill_plan_.tiles);
  device_tiles_begin_ = add_list(inputs, prefill_plan_.begin);
}

void Attention::plan_decode(StepInputs& inputs) {
  device_items_.clear();
  if (decode_.empty()) return;
  for (const int window : windows_) {
    plan_decode_attention(decode_, heads_, kv_heads_, head_dim_, window, sms_, decode_plan_);
    device_items_.push_back(add_list(inputs, decode_plan_.items));
  }
}

void Attention::rope_and_append(cudaStream_t stream, const AttentionArgs& args) {
  ridge::cuda::rope_and_append(
      stream, format_,
      {args.qkv, args.heads, args.kv_heads, args.head_dim, device_runs_, rope_count_, args.q_norm,
       args.k_norm, args.eps, args.frequency, args.magnitude, args.kv_slots, args.q, args.kv});
  if (dequantize_count_ > 0) {
    dequantize_pages(stream, format_,
                     {args.kv, device_dequantized_pages_, dequantize_count_, args.kv_heads,
                      args.head_dim, buffers_.dequantized});
  }
}

void Attention::launch(cudaStream_t stream, const AttentionArgs& args) {
  const int group = heads_ / kv_heads_;
  if (device_tiles_ != nullptr) {
    const bool bf16 = format_ == KvFormat::bf16;
    launch_prefill_attention(
        stream, sms_,
        {args, bf16 ? reinterpret_cast<const uint16_t*>(args.kv) : buffers_.dequantized, args.pages,
         group, device_tiles_, device_tiles_begin_});
  }
  if (device_items_.empty()) return;
  const auto window = std::find(windows_.begin(), windows_.end(), args.window);
  if (window == windows_.end()) throw Error("attention: no plan for a window of {}", args.window);
  launch_decode_attention(stream, sms_,
                          {args, format_, group, device_items_[size_t(window - windows_.begin())],
                           buffers_.partials, buffers_.arrived});
}

}  // namespace ridge::cuda
