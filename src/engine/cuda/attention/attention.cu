#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/cuda/attention/attention.cuh"
#include "engine/cuda/attention/dequantize_pages.cuh"

namespace ridge::cuda {
namespace {

constexpr int kMaxDecodeRows = 64;  // packed rows of a sequence; more are prefill

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

// Appends the tokens of a sequence, cut at half pages.
void append_rope_runs(std::vector<RopeRun>& runs, const AttentionSequence& s) {
  constexpr int kHalfPage = kPageTokens / 2;
  for (int i = 0; i < s.rows;) {
    const int count = std::min(s.rows - i, kHalfPage - (s.past + i) % kHalfPage);
    runs.push_back({s.row + i, count});
    i += count;
  }
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
  std::vector<AttentionSequence> prefill, decode;
  std::vector<RopeRun> runs;
  for (const AttentionSequence& s : sequences) {
    if (s.rows == 0) continue;
    (s.rows * (heads_ / kv_heads_) > kMaxDecodeRows ? prefill : decode).push_back(s);
    if (s.rows > 1) append_rope_runs(runs, s);
  }
  rope_count_ = int(runs.size());
  upload(stream, rope_runs_, runs);
  plan_prefill(stream, std::move(prefill));
  plan_decode(stream, decode);
}

void Attention::plan_prefill(cudaStream_t stream, std::vector<AttentionSequence> sequences) {
  has_prefill_ = !sequences.empty();
  dequantize_count_ = 0;
  if (!has_prefill_) return;
  if (format_ != KvFormat::bf16) plan_dequantization(stream, sequences);
  const PrefillPlan plan =
      plan_prefill_attention(std::move(sequences), heads_, kv_heads_, head_dim_, sms_);
  upload(stream, prefill_tiles_, plan.tiles);
  upload(stream, prefill_begin_, plan.begin);
}

// Renumbers the pages of `sequences` to the bf16 copies that rope_and_append() makes.
void Attention::plan_dequantization(cudaStream_t stream,
                                    std::vector<AttentionSequence>& sequences) {
  std::vector<int> from;
  for (AttentionSequence& s : sequences) {
    const int pages = (s.past + s.rows + kPageTokens - 1) / kPageTokens;
    const int first = int(from.size());
    for (int page = 0; page < pages; ++page) from.push_back(s.pages + page);
    s.pages = first;
  }
  dequantize_count_ = int(from.size());
  std::vector<int> numbers(from.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  upload(stream, dequantize_from_, from);
  upload(stream, dequantized_pages_, numbers);
  grow(dequantized_, from.size() * kv_heads_ * page_elements(head_dim_));
}

void Attention::plan_decode(cudaStream_t stream, const std::vector<AttentionSequence>& sequences) {
  decode_begin_.clear();
  if (sequences.empty()) return;
  std::vector<DecodeItem> items;
  int partials = 0, counters = 0;
  for (const int window : windows_) {
    const DecodePlan plan = plan_decode_attention(sequences, heads_, kv_heads_, window, sms_);
    decode_begin_.push_back(items.size());
    items.insert(items.end(), plan.items.begin(), plan.items.end());
    partials = std::max(partials, plan.partials), counters = std::max(counters, plan.counters);
  }
  upload(stream, decode_items_, items);
  grow(partials_, size_t(partials) * partial_record_size(head_dim_));
  if (grow(arrived_, counters)) {
    check(cudaMemsetAsync(arrived_.data(), 0, arrived_.size() * sizeof(unsigned), stream),
          "filling");
  }
}

void Attention::rope_and_append(cudaStream_t stream, const AttentionArgs& args) {
  ridge::cuda::rope_and_append(stream, format_,
                               {args.qkv, args.heads, args.kv_heads, args.head_dim,
                                rope_runs_.data(), rope_count_, args.q_norm, args.k_norm, args.eps,
                                args.frequency, args.magnitude, args.kv_slots, args.q, args.kv});
  if (dequantize_count_ > 0) {
    dequantize_pages(stream, format_,
                     {args.kv, args.pages, dequantize_from_.data(), dequantize_count_,
                      args.kv_heads, args.head_dim, dequantized_.data()});
  }
}

void Attention::launch(cudaStream_t stream, const AttentionArgs& args) {
  const int group = heads_ / kv_heads_;
  if (has_prefill_) {
    const bool bf16 = format_ == KvFormat::bf16;
    launch_prefill_attention(
        stream, sms_,
        {args, bf16 ? reinterpret_cast<const uint16_t*>(args.kv) : dequantized_.data(),
         bf16 ? args.pages : dequantized_pages_.data(), group, prefill_tiles_.data(),
         prefill_begin_.data()});
  }
  if (decode_begin_.empty()) return;
  const auto window = std::find(windows_.begin(), windows_.end(), args.window);
  if (window == windows_.end()) throw Error("attention: no plan for a window of {}", args.window);
  launch_decode_attention(stream, sms_,
                          {args, format_, group,
                           decode_items_.data() + decode_begin_[size_t(window - windows_.begin())],
                           partials_.data(), arrived_.data()});
}

}  // namespace ridge::cuda
