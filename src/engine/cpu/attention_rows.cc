// Compiled once per Highway target; the best target is chosen at run time.
//
// A job packs the query heads of one KV head and a block of tokens into rows. All rows process one
// tile of 64 keys before the next tile starts: scores as register tiles (rows x vectors of keys),
// softmax, values as register tiles (rows x vectors of the head). With many rows the tile is first
// converted to f32 in scratch that stays in L2; with few rows it is converted in registers as it is
// loaded. Both paths do the same operations in the same order for a row, so they give the same
// bits. Prompts may run in AMX tiles instead (attention_amx-inl.h).
#include "engine/cpu/attention_rows.h"

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/cpu/amx_tiles.h"

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/attention_rows.cc"  // this file, once per target
#include <hwy/foreach_target.h>                            // must come before highway.h
#include <hwy/highway.h>

#include "engine/cpu/attention_tiles-inl.h"
#include "engine/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {

using Words = hn::Rebind<uint32_t, Floats>;

// The range of keys that a query row attends to.
struct Sight {
  int begin, end;  // positions
};

Sight sight_of(const AttentionCall& call, const AttentionJob& job, int row) {
  const int group = call.rules.heads / call.cache.kv_heads;
  const int position = job.slice->past + (job.row + row) / group;
  return {call.rules.first_key(position), position + 1};
}

// The query head of a row.
size_t head_of(const AttentionCall& call, const AttentionJob& job, int row) {
  const int group = call.rules.heads / call.cache.kv_heads;
  return size_t(job.kv_head * group + (job.row + row) % group);
}
int64_t token_of(const AttentionCall& call, const AttentionJob& job, int row) {
  const int group = call.rules.heads / call.cache.kv_heads;
  return job.slice->first + (job.row + row) / group;
}

struct Room {  // a job's scratch
  float* q;    // [rows][padded dim], multiplied by the scale
  float* k;    // [tile / 16][dim][16]
  float* v;    // [tile][padded value_dim]
  float* s;    // [rows][tile]: scores, then weights
  RowState span, total;
};

Room make_room(AttentionScratch& scratch, int rows, int head_dim, int value_dim) {
  const auto n = size_t(rows), dim = size_t(padded(head_dim));
  float* at =
      scratch.reserve(n * dim + 2 * kTile * dim + n * kTile + 2 * state_floats(n, value_dim));
  Room room;
  const auto take = [&](size_t floats) {
    float* taken = at;
    at += floats;
    return taken;
  };
  room.q = take(n * dim);
  room.k = take(kTile * dim);
  room.v = take(kTile * dim);
  room.s = take(n * kTile);
  room.span = state_at(take(state_floats(n, value_dim)), n, value_dim);
  room.total = state_at(take(state_floats(n, value_dim)), n, value_dim);
  return room;
}

void clear(const RowState& state, int rows, int value_dim) {
  std::fill_n(state.max, rows, kNothing);
  std::fill_n(state.sum, size_t(rows) * kSumLanes, 0.0f);
  std::fill_n(state.out, size_t(rows) * size_t(padded(value_dim)), 0.0f);
}

void pack_queries(const AttentionCall& call, const AttentionJob& job, float* to) {
  const int dim = call.cache.head_dim;
  for (int row = 0; row < job.rows; ++row) {
    const float* from =
        call.q + token_of(call, job, row) * call.q_stride + head_of(call, job, row) * size_t(dim);
    for (int d = 0; d < dim; ++d) to[row * padded(dim) + d] = from[d] * call.rules.scale;
  }
}

// Addresses of one tile's keys and values in the cache, per group of kKeyGroup tokens.
template <typename T>
struct CacheTile {
  const T* keys[kTile / kKeyGroup];
  const T* values[kTile / kKeyGroup];
  HWY_ALIGN float key_scale[kTile];  // int8 only
  HWY_ALIGN float value_scale[kTile];
};

// Groups beyond `end` point to the tile's first group: their scores are computed and then masked.
template <typename T>
void find_tile(const AttentionCall& call, const AttentionJob& job, int tile, int end,
               CacheTile<T>& found) {
  const LayerCache& cache = call.cache;
  for (int g = 0; g < kTile / kKeyGroup; ++g) {
    const int group = tile + g * kKeyGroup;
    const int position = group < end ? group : tile;
    const auto page = size_t(job.slice->pages[size_t(position / cache.page_tokens)]);
    const size_t token =
        (page * size_t(cache.kv_heads) + size_t(job.kv_head)) * size_t(cache.page_tokens) +
        size_t(position % cache.page_tokens);
    found.keys[g] = reinterpret_cast<const T*>(cache.k) + token * size_t(cache.head_dim);
    if (cache.latent_dim == 0) {
      found.values[g] = reinterpret_cast<const T*>(cache.v) + token * size_t(cache.head_dim);
    }
    if constexpr (sizeof(T) == 1) {
      std::memcpy(found.key_scale + g * kKeyGroup, cache.k_scale + token, kKeyGroup * 4);
      std::memcpy(found.value_scale + g * kKeyGroup, cache.v_scale + token, kKeyGroup * 4);
    }
  }
}

// Attention of all rows of a job over one tile of keys.
template <class From>
struct TileWork {
  using T = typename From::T;
  const AttentionCall& call;
  const AttentionJob& job;
  const Room& room;

  // Processes the rows in blocks of at most kRowTile, as evenly sized as possible.
  template <class Stored>
  void rows_meet(int tile, int end, Streams<typename Stored::T> keys,
                 Streams<typename Stored::T> values, const Softening& soft) const {
    const int dim = call.cache.head_dim, stride = padded(dim);
    const int value_dim = call.cache.value_dim(), out_stride = padded(value_dim);
    const int blocks = (job.rows + kRowTile - 1) / kRowTile;
    for (int block = 0; block < blocks; ++block) {
      const int first = job.rows * block / blocks, past = job.rows * (block + 1) / blocks;
      const int rows = past - first;
      // The visible range only moves forward from row to row.
      const int see_begin = std::max(sight_of(call, job, first).begin - tile, 0);
      const int see_end = std::min({sight_of(call, job, past - 1).end, end, tile + kTile}) - tile;
      if (see_begin >= see_end) continue;
      float* s = room.s + first * kTile;
      scores<Stored>(rows, room.q + first * stride, stride, keys, dim, see_begin, see_end, s);
      float max[kRowTile + kLanes] = {}, rescale[kRowTile + kLanes];
      for (int r = 0; r < rows; ++r) {
        const Sight sight = sight_of(call, job, first + r);
        max[r] = prepare(soft, s + r * kTile, sight.begin - tile, std::min(sight.end, end) - tile,
                         room.span.max[first + r]);
      }
      raise(rows, max, room.span.max + first, rescale);
      for (int r = 0; r < rows; ++r) {
        weigh(soft, s + r * kTile, max[r], rescale[r], room.span.sum + (first + r) * kSumLanes);
      }
      mix<Stored>(rows, s, values, see_begin, see_end, rescale, value_dim,
                  room.span.out + first * out_stride, out_stride);
      keys.ahead = nullptr;  // the first block has prefetched the next tile
      values.ahead = nullptr;
    }
  }

  // Whether the tile is converted in registers. Converting twice costs as much as storing the f32
  // values and reading them back, so at most two blocks of rows do it.
  bool is_direct() const {
    // A head that does not fill whole vectors is padded in scratch: the memory after the last row
    // of the cache may not be readable. Values that are keys are transposed there.
    return call.cache.latent_dim == 0 && job.rows <= 2 * kRowTile &&
           call.cache.head_dim % kLanes == 0;
  }

  void run(int tile, int end, const CacheTile<T>& found, const CacheTile<T>* next) const {
    const Softening soft{call.rules.softcap, sizeof(T) == 1 ? found.key_scale : nullptr,
                         sizeof(T) == 1 ? found.value_scale : nullptr};
    const int dim = call.cache.head_dim, value_dim = call.cache.value_dim();
    const int stride = padded(value_dim);
    if (is_direct()) {
      rows_meet<From>(tile, end, {found.keys, next ? next->keys : nullptr, 0},
                      {found.values, next ? next->values : nullptr, dim}, soft);
      return;
    }
    const float* keys[kTile / kKeyGroup];
    const float* values[kTile / kKeyGroup];
    const int last = std::min(end - tile, kTile);  // values beyond it are undefined
    for (int g = 0; g < kTile / kKeyGroup; ++g) {
      float* k = room.k + g * kKeyGroup * dim;
      widen<From>(found.keys[g], kKeyGroup * dim, k);
      keys[g] = k;
      float* v = room.v + g * kKeyGroup * stride;
      if (call.cache.latent_dim > 0) {
        transpose_keys(k, value_dim, v, stride);
      } else {
        for (int i = 0; i < std::min(last - g * kKeyGroup, kKeyGroup); ++i) {
          widen<From>(found.values[g] + i * dim, dim, v + i * stride);
        }
      }
      values[g] = v;
    }
    rows_meet<FromF32>(tile, end, {keys, nullptr, 0}, {values, nullptr, stride}, soft);
  }

  // Processes the tiles of keys [begin, end). The next tile's addresses are computed first, so that
  // it can be prefetched.
  void run_all(int begin, int end) const {
    CacheTile<T> tiles[2];
    find_tile(call, job, begin, job.end, tiles[0]);
    for (int tile = begin, i = 0; tile < end; tile += kTile, i ^= 1) {
      const bool more = tile + kTile < job.end;
      if (more) find_tile(call, job, tile + kTile, job.end, tiles[i ^ 1]);
      run(tile, job.end, tiles[i], more ? &tiles[i ^ 1] : nullptr);
    }
  }
};

// Writes a row's result, out / sum. Zeros are written as positive zeros. A sink adds to the sum
// alone.
void finish(const AttentionCall& call, const AttentionJob& job, int row, const RowState& state,
            int state_row) {
  const int dim = call.cache.value_dim();
  const size_t head = head_of(call, job, row);
  const float* from = state.out + state_row * padded(dim);
  float* to = call.out + token_of(call, job, row) * call.out_stride + head * size_t(dim);
  float sum = lanes_sum(state.sum + state_row * kSumLanes);
  if (call.rules.sinks) {
    const float sink = call.rules.sinks[head];
    sum += float(std::exp(std::min(double(sink) - double(state.max[state_row]), 80.0)));
  }
  divide(from, dim, sum, to);
}

// Calls run(state, begin, end) for every span of a job's keys, merges the states in order and
// writes the rows of `out`; of a partial job, one span is left in its state.
template <class Run>
void attend_spans(const AttentionCall& call, const AttentionJob& job, RowState span, RowState total,
                  const Run& run) {
  const int dim = call.cache.value_dim();
  bool first = true;
  for (int start = job.begin / kSpan * kSpan; start < job.end; start += kSpan) {
    clear(span, job.rows, dim);
    run(span, std::max(start, job.begin / kTile * kTile), std::min(start + kSpan, job.end));
    if (job.partial != nullptr) return;
    if (first) {
      std::swap(span, total);
      first = false;
    } else {
      for (int row = 0; row < job.rows; ++row) merge(span, row, total, row, padded(dim));
    }
  }
  for (int row = 0; row < job.rows; ++row) finish(call, job, row, total, row);
}

template <class From>
void attend_vectors(const AttentionCall& call, const AttentionJob& job, AttentionScratch& scratch) {
  const int dim = call.cache.value_dim();
  Room room = make_room(scratch, job.rows, call.cache.head_dim, dim);
  if (job.partial != nullptr) room.span = state_at(job.partial, size_t(job.rows), dim);
  pack_queries(call, job, room.q);
  attend_spans(call, job, room.span, room.total, [&](const RowState& state, int begin, int end) {
    room.span = state;
    const TileWork<From> work{call, job, room};
    work.run_all(begin, end);
  });
}

// AMX tiles for prompts.
#include "engine/cpu/attention_amx-inl.h"

template <class From>
void attend_from(const AttentionCall& call, const AttentionJob& job, AttentionScratch& scratch) {
  switch (job.tiles) {
    case AttentionTiles::none:
      return attend_vectors<From>(call, job, scratch);
    case AttentionTiles::amx:
#if defined(__x86_64__)
      return attend_tiled<From, AmxTiles>(call, job, scratch);
#endif
    case AttentionTiles::modelled:
      return attend_tiled<From, ModelTiles>(call, job, scratch);
  }
}

void attend_best(const AttentionCall& call, const AttentionJob& job, AttentionScratch& scratch) {
  switch (call.cache.storage) {
    case KvStorage::f32:
      return attend_vectors<FromF32>(call, job, scratch);
    case KvStorage::f16:
      return attend_from<FromF16>(call, job, scratch);
    case KvStorage::bf16:
      return attend_from<FromBf16>(call, job, scratch);
    case KvStorage::int8:
      return attend_from<FromInt8>(call, job, scratch);
    case KvStorage::fp8:
      break;  // make_cpu_runner refuses it
  }
}

void merge_best(const AttentionCall& call, const AttentionJob* first, int count, int row) {
  const int dim = call.cache.value_dim();
  const RowState total = state_at(first->partial, size_t(first->rows), dim);
  for (int i = 1; i < count; ++i) {
    merge(state_at(first[i].partial, size_t(first->rows), dim), row, total, row, padded(dim));
  }
  finish(call, *first, row, total, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridge::cpu {

HWY_EXPORT(attend_best);
HWY_EXPORT(merge_best);

RowState state_at(float* memory, size_t rows, int value_dim) {
  RowState state;
  state.out = memory;
  state.sum = state.out + rows * size_t(padded(value_dim));
  state.max = state.sum + rows * kSumLanes;
  return state;
}

float* AttentionScratch::reserve(size_t floats) {
  constexpr size_t kLine = 64 / sizeof(float);
  if (memory_.size() < floats + kLine) memory_.resize(floats + kLine);
  const auto address = reinterpret_cast<uintptr_t>(memory_.data());
  return memory_.data() + (kLine - address / sizeof(float) % kLine) % kLine;
}

void attend(const AttentionCall& call, const AttentionJob& job, AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(attend_best)(call, job, scratch);
}

void merge_spans(const AttentionCall& call, const AttentionJob* first, int count, int row) {
  HWY_DYNAMIC_DISPATCH(merge_best)(call, first, count, row);
}

}  // namespace ridge::cpu
#endif
