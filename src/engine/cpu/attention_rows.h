// Internals of attention: the definition of a job, and the state of its online softmax.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/cpu/attention.h"

namespace ridge::cpu {

// Keys are processed in tiles that start at multiples of kTile and summed in spans that start at
// multiples of kSpan; spans are merged in order. The bits of a row therefore depend on its position
// alone, and different threads can process different spans of a row.
inline constexpr int kTile = 64;
inline constexpr int kSpan = 1024;
inline constexpr int kMaxRows = 96;  // of a job: 16 register tiles of 6, 8 of them in AVX-512's L2
inline constexpr int kTiledRows = 256;  // of a job in AMX tiles, which converts its keys and values
inline constexpr int kSumLanes = 16;    // lanes of the running sum: those of the widest vector

// Rounds up so that every row consists of whole vectors.
constexpr int padded(int dim) { return (dim + kSumLanes - 1) / kSumLanes * kSumLanes; }

// The online softmax of some rows: out = sum over keys of exp(s - max) v, and sum = sum over keys
// of exp(s - max), spread over lanes. A row that has processed no key has max == kNothing.
struct RowState {
  float* max = nullptr;  // [rows]
  float* sum = nullptr;  // [rows][kSumLanes]
  float* out = nullptr;  // [rows][padded value_dim]
};
constexpr size_t state_floats(size_t rows, int value_dim) {
  // max takes the space of a vector.
  return rows * size_t(kSumLanes + kSumLanes + padded(value_dim));
}
RowState state_at(float* memory, size_t rows, int value_dim);

// Rows [row, row + rows) of a slice's queries for one KV head, over the keys [begin, end). Rows are
// counted over tokens and the heads that share the KV head: row = token * group + head in group.
// The keys are whole spans, except at the two ends.
struct AttentionJob {
  const AttentionSlice* slice = nullptr;
  int kv_head = 0;
  int row = 0, rows = 0;
  int begin = 0, end = 0;
  AttentionTiles tiles = AttentionTiles::none;
  float* partial = nullptr;  // memory of a RowState, when the job is one span of several
};

struct AttentionCall {  // common to all jobs
  AttentionRules rules;
  LayerCache cache;
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

// Scratch memory, one per thread. It grows to the largest job and is kept.
class AttentionScratch {
 public:
  float* reserve(size_t floats);

 private:
  std::vector<float> memory_;
};

// Writes the rows of `out`, or the job's partial state.
void attend(const AttentionCall& call, const AttentionJob& job, AttentionScratch& scratch);
// Merges the partial states of jobs [first, first + count), which are the spans of the same rows in
// order, for row `row`, and writes that row of `out`.
void merge_spans(const AttentionCall& call, const AttentionJob* first, int count, int row);

}  // namespace ridge::cpu
