// The closed forms against loops over every query and key.
#include "cost/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ridge {
namespace {

struct Counted {
  double pairs = 0, keys = 0;
};

// Query i stands at position past + i and sees itself and what is before it: all, the last
// `window` positions, or its own chunk of `window` positions.
Counted count(int fresh, int past, int window, bool chunked) {
  Counted c;
  std::set<int> seen;
  for (int q = past; q < past + fresh; ++q) {
    for (int k = 0; k <= q; ++k) {
      const bool visible = window == 0 || (chunked ? k / window == q / window : q - k < window);
      if (!visible) continue;
      ++c.pairs;
      seen.insert(k);
    }
  }
  c.keys = double(seen.size());
  return c;
}

TEST(Attention, PairsAndKeysMatchNaiveLoops) {
  for (int fresh : {1, 2, 5, 16, 33}) {
    for (int past : {0, 1, 7, 8, 9, 40}) {
      for (int window : {0, 1, 4, 8, 64}) {
        SCOPED_TRACE(testing::Message() << fresh << " after " << past << ", window " << window);
        const AttentionShape s{.heads = 1, .kv_heads = 1, .window = double(window)};
        const AttentionSpan span{1, double(fresh), double(past)};
        const Counted c = count(fresh, past, window, false);
        EXPECT_EQ(attended_pairs(s, span), c.pairs);
        EXPECT_EQ(visible_keys(s, span), c.keys);
      }
    }
  }
}

TEST(Attention, ChunkedIsExactOverWholeChunks) {
  const int window = 8;
  const AttentionShape s{.heads = 1, .kv_heads = 1, .window = double(window), .chunked = true};
  // Inside the first chunk a query sees all before it; whole chunks average (window + 1) / 2.
  for (int fresh : {1, 3, 8, 16, 40}) {
    for (int past : {0, 4, 8, 24}) {
      if (past + fresh > window && (past + fresh) % window != 0) continue;
      if (past > window && past % window != 0) continue;
      if (past < window && past + fresh > window && past != 0) continue;
      SCOPED_TRACE(testing::Message() << fresh << " after " << past);
      const AttentionSpan span{1, double(fresh), double(past)};
      EXPECT_EQ(attended_pairs(s, span), count(fresh, past, window, true).pairs);
    }
  }
  // Decoding past the first chunk: the mean over a chunk of positions.
  double pairs = 0;
  for (int past = 16; past < 24; ++past) pairs += count(1, past, window, true).pairs / 8;
  EXPECT_DOUBLE_EQ(attended_pairs(s, {1, 1, 20}), pairs);
  EXPECT_DOUBLE_EQ(visible_keys(s, {1, 1, 20}), pairs);
  EXPECT_EQ(visible_keys(s, {1, 1, 6}), 7);
  EXPECT_EQ(visible_keys(s, {1, 40, 0}), 40);
}

TEST(Attention, SparsePicksCapEveryQuery) {
  const AttentionShape s{.heads = 1, .kv_heads = 1, .index_topk = 4};
  double pairs = 0;
  for (int i = 1; i <= 10; ++i) pairs += std::min(4, 3 + i);
  EXPECT_EQ(attended_pairs(s, {1, 10, 3}), pairs);
  EXPECT_EQ(visible_keys(s, {1, 1, 100}), 4);
  EXPECT_EQ(visible_keys(s, {1, 10, 3}), 13);  // picks may differ: all of them
}

AttentionShape gqa(double heads, double kv_heads) {
  return {.heads = heads, .kv_heads = kv_heads, .head_dim = 128, .v_head_dim = 128};
}

TEST(Attention, FlashFlopsAreTwoProductsPerPair) {
  const AttentionSpan span{3, 17, 40};
  AttentionShape s = gqa(8, 2);
  s.v_head_dim = 64;
  const Work w = flash_attention_work(s, span);
  EXPECT_DOUBLE_EQ(w.flops, 3 * 8 * count(17, 40, 0, false).pairs * 2 * (128 + 64));
  EXPECT_DOUBLE_EQ(w.kv_bytes, 3 * 57 * 2 * (128 + 64) * 2);
  EXPECT_DOUBLE_EQ(w.act_bytes, 3 * 17 * 8 * (128 + 64) * 2);  // Q in, O out
}

TEST(Attention, GroupedQueriesShareTheCacheNotTheArithmetic) {
  const AttentionSpan decode{16, 1, 4095};
  const Work mha = flash_attention_work(gqa(64, 64), decode);
  const Work grouped = flash_attention_work(gqa(64, 8), decode);
  EXPECT_DOUBLE_EQ(mha.kv_bytes / grouped.kv_bytes, 8);
  EXPECT_DOUBLE_EQ(mha.flops, grouped.flops);
  AttentionShape fp8 = gqa(64, 8);
  fp8.kv_bytes = 1;
  EXPECT_DOUBLE_EQ(flash_attention_work(fp8, decode).kv_bytes, grouped.kv_bytes / 2);
}

TEST(Attention, ChunksOfAPromptDoTheSameArithmetic) {
  const AttentionShape s = gqa(32, 8);
  const double whole = flash_attention_work(s, {1, 4096, 0}).flops;
  double parts = 0, cache = 0;
  for (double past = 0; past < 4096; past += 512) {
    const Work w = flash_attention_work(s, {1, 512, past});
    parts += w.flops;
    cache += w.kv_bytes;
  }
  EXPECT_DOUBLE_EQ(parts, whole);
  // Each chunk reads its prefix again: (1 + 2 + ... + 8) / 8 times the cache.
  EXPECT_DOUBLE_EQ(cache, 4.5 * flash_attention_work(s, {1, 4096, 0}).kv_bytes);
}

TEST(Attention, NaiveDoesNotHalveAndMovesTheScoresFourTimes) {
  const AttentionSpan span{1, 512, 0};
  const Work flash = flash_attention_work(gqa(4, 4), span);
  const Work naive = naive_attention_work(gqa(4, 4), span);
  EXPECT_DOUBLE_EQ(naive.flops / flash.flops, 512 * 512 / (512 * 513 / 2.0));
  EXPECT_DOUBLE_EQ(naive.device_bytes() - flash.device_bytes(), 4.0 * 4 * 512 * 512 * 2);
  EXPECT_EQ(naive.launches, 3);
  EXPECT_EQ(flash.launches, 1);
  // Grouped: K and V are written out once per head and read back.
  const Work expanded = naive_attention_work(gqa(4, 1), span);
  EXPECT_EQ(expanded.launches, 4);
  EXPECT_DOUBLE_EQ(expanded.act_bytes - naive.act_bytes, 2.0 * 512 * 256 * 4 * 2);
}

TEST(Attention, AbsorbedMlaReadsOneCompressedCacheForAllHeads) {
  AttentionShape s{.heads = 128, .kv_heads = 128, .head_dim = 192, .v_head_dim = 128};
  s.kv_rank = 512;
  s.rope_dim = 64;
  const AttentionSpan span{8, 1, 8191};
  const Work absorbed = mla_absorbed_work(s, span), expanded = flash_attention_work(s, span);
  // DeepSeek-V3: 576 elements a token and layer, scores over 576 and sums over 512 per head.
  EXPECT_DOUBLE_EQ(absorbed.kv_bytes, 8 * 8192.0 * 576 * 2);
  EXPECT_DOUBLE_EQ(absorbed.flops, 8 * 128 * 8192.0 * 2 * (576 + 512));
  EXPECT_DOUBLE_EQ(expanded.kv_bytes / absorbed.kv_bytes, 128 * 320.0 / 576);
  // Half the heads on a rank: half the arithmetic, the same cache (it cannot be cut).
  s.heads = s.kv_heads = 64;
  const Work half = mla_absorbed_work(s, span);
  EXPECT_DOUBLE_EQ(half.flops, absorbed.flops / 2);
  EXPECT_DOUBLE_EQ(half.kv_bytes, absorbed.kv_bytes);
}

TEST(Attention, IndexerScoresEveryVisibleKey) {
  AttentionShape s{.heads = 128, .kv_heads = 128, .head_dim = 192, .v_head_dim = 128};
  s.index_heads = 64;
  s.index_dim = 128;
  s.index_topk = 2048;
  const Work w = indexer_work(s, {2, 1, 65535});
  EXPECT_DOUBLE_EQ(w.flops, 2 * 65536.0 * 64 * 128 * 2);
  // An fp8 key and its fp32 scale per 128 elements.
  EXPECT_DOUBLE_EQ(w.kv_bytes, 2 * 65536.0 * (128 + 4));
}

TEST(Attention, MorePassesNeverBelowOneReadOfTheCache) {
  for (double fresh : {1.0, 16.0, 512.0, 8192.0}) {
    for (double window : {0.0, 1024.0}) {
      AttentionShape s = gqa(32, 8);
      s.window = window;
      const Work w = flash_attention_work(s, {1, fresh, 100});
      EXPECT_GE(w.chip_bytes, w.device_bytes());
    }
  }
}

}  // namespace
}  // namespace ridge
