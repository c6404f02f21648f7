// The attention core: scores, softmax, weighted sum. Projections are matmuls.
#pragma once

#include "cost/work.h"

namespace ridge {

// One rank's share of one layer's attention.
struct AttentionShape {
  double heads = 0, kv_heads = 0;  // on this rank
  double head_dim = 0, v_head_dim = 0;
  double window = 0;     // tokens a query may look back on; 0: all
  bool chunked = false;  // the window is a fixed chunk: past the first, half of one on average
  double kv_bytes = 2;   // per cached element
  double act_bytes = 2;  // per activation element
  // MLA: kv_rank > 0. The cache holds kv_rank + rope_dim per token, shared by all heads.
  double kv_rank = 0, rope_dim = 0;
  // DeepSeek sparse attention: at most index_topk tokens are attended, picked by an indexer.
  double index_heads = 0, index_dim = 0, index_topk = 0;
};

// `count` sequences that each bring `fresh` new tokens after `past` cached ones.
struct AttentionSpan {
  double count = 1, fresh = 1, past = 0;
};

// (query, key) pairs of one head of one sequence: causal, windowed. Without a window
// fresh * past + fresh (fresh + 1) / 2.
double attended_pairs(const AttentionShape& shape, const AttentionSpan& span);
// Keys of one sequence that are read at all.
double visible_keys(const AttentionShape& shape, const AttentionSpan& span);

// FlashAttention: K and V once, Q in, O out, nothing of size n x n. FLOPs 2 (d_qk + d_v) per pair
// and head. GQA packed: the heads of a group share one read of K and V.
Work flash_attention_work(const AttentionShape& shape, const AttentionSpan& span);

// Materialised: S = QK^T written, read by softmax, P written, read by PV; no causal saving, K and
// V expanded to every head. Source: Dao et al. 2022, algorithm 0 (standard attention).
Work naive_attention_work(const AttentionShape& shape, const AttentionSpan& span);

// MLA with the up-projections absorbed: scores and sums run on the compressed cache (multi-query
// with d_qk = kv_rank + rope_dim, d_v = kv_rank). Source: DeepSeek-V2 report, section 2.1.
Work mla_absorbed_work(const AttentionShape& shape, const AttentionSpan& span);

// The DeepSeek-V3.2 indexer: scores every visible key in fp8 to pick index_topk of them.
Work indexer_work(const AttentionShape& shape, const AttentionSpan& span);

}  // namespace ridge
