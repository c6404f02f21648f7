// Attention over a paged KV cache on the CPU, and the writes to that cache.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_team.h"
#include "engine/runner/runner.h"

namespace ridge::cpu {

// The keys of this many tokens are interleaved: page_tokens is a multiple of it.
inline constexpr int kKeyGroup = 16;

// One layer's keys and values.
//   values  [page][kv head][token in page][head_dim]
//   keys    [page][kv head][token in page / 16][head_dim][token % 16]
// A vector of keys therefore holds one element of several keys, and q . k needs no transpose and no
// sums across lanes. int8 has one scale per (page, kv head, token): x = scale q. head_dim is a
// multiple of 8, at most kMaxHeadDim. Latent attention keeps no values: they are the first
// latent_dim elements of the keys, and the output has so many elements per head.
inline constexpr int kMaxHeadDim = 1024;
struct LayerCache {
  KvStorage storage = KvStorage::f16;
  int kv_heads = 0, head_dim = 0, page_tokens = 0;
  int latent_dim = 0;  // a multiple of 8; 0: values of head_dim elements in `v`
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  float* k_scale = nullptr;  // int8 only: [page][kv head][token in page]
  float* v_scale = nullptr;

  int value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
  size_t vector_bytes() const {
    const size_t element = storage == KvStorage::int8 ? 1 : storage == KvStorage::f32 ? 4 : 2;
    return size_t(head_dim) * element;
  }
  size_t page_bytes() const { return size_t(kv_heads) * size_t(page_tokens) * vector_bytes(); }
};

// The tokens of a step are rows: slice s owns rows first .. first + fresh - 1 of q, k, v and out.
struct AttentionSlice {
  int first = 0, fresh = 0, past = 0;
  std::span<const int> pages;
};

struct AttentionRules {  // per layer
  int heads = 0;
  float scale = 1;               // multiplies q . k
  float softcap = 0;             // 0: none
  int window = 0;                // 0: no sliding window
  bool chunked = false;          // the window starts at its last multiple
  const float* sinks = nullptr;  // [heads]: a logit that joins the softmax without a value
  bool tiles = false;            // chunks of kTiledQueries tokens and more may run in AMX tiles

  // The first key that a query at `position` sees.
  int first_key(int position) const {
    if (window <= 0) return 0;
    return chunked ? position / window * window : position < window ? 0 : position - window + 1;
  }
};

// Tiles (amx_tiles.h) multiply q, keys, weights and values in bf16. They are faster than vectors of
// f32 from about 16 rows on. A chunk of fewer tokens runs in f32 whatever its heads, so that decode
// and short chunks have the bits of a CPU without AMX.
inline constexpr int kTiledQueries = 16;
enum class AttentionTiles : uint8_t { none, amx, modelled };
// The tiles in use: the CPU's where it has them, unless a test chooses otherwise.
AttentionTiles attention_tiles();
void choose_attention_tiles(AttentionTiles tiles);

// Applies RMSNorm per head to q and k where q_norm / k_norm are given, then RoPE (in place, f32),
// and writes k and v to the cache. q has `q_stride` floats per row, k and v `kv_stride`. Of a
// latent cache, k_norm has latent_dim elements, RoPE rotates those behind them, and there is no v.
struct RopeStore {
  float* q = nullptr;
  float* k = nullptr;
  const float* v = nullptr;
  int64_t q_stride = 0, kv_stride = 0;
  int heads = 0;
  const float* q_norm = nullptr;  // [head_dim]
  const float* k_norm = nullptr;
  float norm_eps = 1e-5f;
  const Rope* rope = nullptr;
  bool unit = false;  // divides q and k by their root mean square after RoPE
  // Multiplies q at position p by 1 + scale ln(1 + floor((p + 1) / floor)).
  float temperature_scale = 0, temperature_floor = 1;
};
void rope_and_store(ThreadTeam& team, const RopeStore& what, const LayerCache& cache,
                    std::span<const AttentionSlice> slices);

// out[t][head][d] = softmax(scale q . k) v over the visible keys of the token's own sequence. Uses
// online softmax over key tiles that start at multiples of the tile length, so no n x n matrix is
// stored. The query heads that share a KV head are computed together. The order of sums for a token
// does not depend on the other tokens of the step, on the chunking or on the threads. With
// AttentionRules::tiles it depends on whether the chunk has kTiledQueries tokens.
void attention(ThreadTeam& team, const AttentionRules& shape, const LayerCache& cache,
               std::span<const AttentionSlice> slices, const float* q, int64_t q_stride, float* out,
               int64_t out_stride);

}  // namespace ridge::cpu
