#include "cost/attention.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

// Rows of queries that one pass of K and V serves: FlashAttention-3 keeps 128 in a thread block,
// and a cluster of two can share a pass by multicast. A group's heads fill the rows together.
constexpr double kQueryRows = 256;

// Vector operations a score costs in online softmax: scale, running max, subtract, exponential,
// running sum.
constexpr double kSoftmaxOps = 5;

// Sum over i = 1..fresh of min(limit, past + i).
double capped_sum(double fresh, double past, double limit) {
  const double free_tokens = std::clamp(limit - past, 0.0, fresh);  // not yet at the limit
  return free_tokens * past + free_tokens * (free_tokens + 1) / 2 + (fresh - free_tokens) * limit;
}

double look_back(const AttentionShape& s) {
  if (s.window <= 0) return INFINITY;
  return s.chunked ? (s.window + 1) / 2 : s.window;
}

double attended_limit(const AttentionShape& s) {
  return s.index_topk > 0 ? std::min(look_back(s), s.index_topk) : look_back(s);
}

// Up to the first boundary a chunk hides nothing; after it a query sees half a chunk on average.
double chunked_pairs(const AttentionShape& s, const AttentionSpan& span) {
  const double first = std::clamp(s.window - span.past, 0.0, span.fresh);
  return capped_sum(first, span.past, s.window) + (span.fresh - first) * look_back(s);
}

struct Stream {
  double heads, sharing;  // query heads, and how many of them share one K and V
  double qk_dim, v_dim;
  double pairs, keys;  // per head and sequence
  double cache_bytes;  // of the keys that are read, all heads
};

Work streamed(const Stream& a, double act_bytes, const AttentionSpan& span) {
  Work work;
  work.flops = span.count * 2 * a.heads * a.pairs * (a.qk_dim + a.v_dim);
  work.padded_flops = work.flops;
  work.vector_flops = span.count * kSoftmaxOps * a.heads * a.pairs;
  work.kv_bytes = span.count * a.cache_bytes;
  work.act_bytes = span.count * span.fresh * a.heads * (a.qk_dim + a.v_dim) * act_bytes;
  // Each block of query rows passes over the keys it attends to, not over all of them.
  const double attended = a.pairs / (span.fresh * a.keys);
  const double passes = std::max(1.0, span.fresh * a.sharing / kQueryRows * attended);
  work.chip_bytes = work.kv_bytes * passes + work.act_bytes;
  return work;
}

}  // namespace

double attended_pairs(const AttentionShape& s, const AttentionSpan& span) {
  if (s.window > 0 && s.chunked && s.index_topk <= 0) return chunked_pairs(s, span);
  const double limit = attended_limit(s);
  if (std::isinf(limit)) return span.fresh * span.past + span.fresh * (span.fresh + 1) / 2;
  return capped_sum(span.fresh, span.past, limit);
}

double visible_keys(const AttentionShape& s, const AttentionSpan& span) {
  const double all = span.past + span.fresh;
  const double limit = attended_limit(s);
  if (std::isinf(limit) || (s.chunked && span.past < s.window)) return all;
  // A span of fresh queries sees the union of their windows; sparse picks may differ per query.
  const double unions = s.index_topk > 0 ? span.fresh * limit : limit + span.fresh - 1;
  return std::min(all, unions);
}

Work flash_attention_work(const AttentionShape& s, const AttentionSpan& span) {
  const double keys = visible_keys(s, span);
  const double cache = keys * s.kv_heads * (s.head_dim + s.v_head_dim) * s.kv_bytes;
  return streamed({s.heads, s.heads / s.kv_heads, s.head_dim, s.v_head_dim, attended_pairs(s, span),
                   keys, cache},
                  s.act_bytes, span);
}

Work mla_absorbed_work(const AttentionShape& s, const AttentionSpan& span) {
  const double keys = visible_keys(s, span);
  const double width = s.kv_rank + s.rope_dim;
  return streamed({s.heads, s.heads, width, s.kv_rank, attended_pairs(s, span), keys,
                   keys * width * s.kv_bytes},
                  s.act_bytes, span);
}

Work naive_attention_work(const AttentionShape& s, const AttentionSpan& span) {
  const double keys = span.past + span.fresh;
  const double scores = s.heads * span.fresh * keys;  // the n x n matrix, all heads
  Work work;
  work.flops = span.count * 2 * scores * (s.head_dim + s.v_head_dim);
  work.padded_flops = work.flops;
  work.vector_flops = span.count * kSoftmaxOps * scores;
  const double cache = keys * (s.head_dim + s.v_head_dim);
  // Read as cached, and with fewer KV heads than heads also written and read expanded.
  work.kv_bytes = span.count * cache * s.kv_heads * s.kv_bytes;
  const double expanded = s.kv_heads < s.heads ? 2 * cache * s.heads * s.act_bytes : 0;
  const double in_out = span.fresh * s.heads * (s.head_dim + s.v_head_dim) * s.act_bytes;
  work.act_bytes = span.count * (in_out + expanded + 4 * scores * s.act_bytes);
  work.chip_bytes = work.kv_bytes + work.act_bytes;
  work.launches = s.kv_heads < s.heads ? 4 : 3;  // (expand,) QK^T, softmax, PV
  return work;
}

Work indexer_work(const AttentionShape& s, const AttentionSpan& span) {
  AttentionShape all = s;
  all.index_topk = 0;
  const double pairs = attended_pairs(all, span);
  const double keys = visible_keys(all, span);
  Work work;
  work.flops = span.count * 2 * s.index_heads * s.index_dim * pairs;
  work.padded_flops = work.flops;
  work.vector_flops = span.count * (2 * s.index_heads + 4) * pairs;  // ReLU, weights, top-k
  // fp8 keys, an fp32 scale per 128 elements (as model/model.cc counts the cache).
  work.kv_bytes = span.count * keys * (s.index_dim + 4 * std::ceil(s.index_dim / 128));
  work.act_bytes = span.count * (span.fresh * s.index_heads * s.index_dim + 2 * 4 * pairs);
  const double passes = std::max(1.0, span.fresh * s.index_heads / kQueryRows);
  work.chip_bytes = work.kv_bytes * passes + work.act_bytes;
  work.launches = 2;  // scores, top-k
  return work;
}

}  // namespace ridge
