// The inside of attention: what a job of it is, and the state of its online softmax.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/cpu/attention.h"

namespace ridge::cpu {

// Keys are taken in tiles that start at multiples of kTile and summed in spans that start at
// multiples of kSpan; spans are merged in order. So the bits of a row depend on its position alone,
// and a span is what another thread can take.
inline constexpr int kTile = 64;
inline constexpr int kSpan = 1024;
inline constexpr int kMaxRows = 96;   // of a job: 16 register tiles of 6, 8 of them in AVX-512's L2
inline constexpr int kSumLanes = 16;  // of the running sum: the widest vector's

// Padded so that every vector of a row is whole.
constexpr int padded(int head_dim) { return (head_dim + kSumLanes - 1) / kSumLanes * kSumLanes; }

// The online softmax of some rows: out = sum over keys of exp(s - max) v, sum the same of 1, spread
// over lanes. A row that has seen no key has max == kNothing.
struct RowState {
  float* max = nullptr;  // [rows]
  float* sum = nullptr;  // [rows][kSumLanes]
  float* out = nullptr;  // [rows][padded head_dim]
};
constexpr size_t state_floats(size_t rows, int head_dim) {
  return rows * size_t(kSumLanes + kSumLanes + padded(head_dim));  // max takes a vector's room
}
RowState state_at(float* memory, size_t rows, int head_dim);

// Rows [row, row + rows) of a slice's queries for one KV head, counted over tokens and the heads
// that share it: row = token * group + head in group. Over keys [begin, end), whole spans but for
// the ends.
struct AttentionJob {
  const AttentionSlice* slice = nullptr;
  int kv_head = 0;
  int row = 0, rows = 0;
  int begin = 0, end = 0;
  float* partial = nullptr;  // a RowState's memory, when the job is one span of several
};

struct AttentionCall {  // what all jobs have in common
  AttentionRules rules;
  LayerCache cache;
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

// Grows to the largest job and stays: one per thread.
class AttentionScratch {
 public:
  float* reserve(size_t floats);

 private:
  std::vector<float> memory_;
};

// Writes the rows' part of `out`, or the job's partial state.
void attend(const AttentionCall& call, const AttentionJob& job, AttentionScratch& scratch);
// Merges the partial states of jobs [first, first + count), the spans of the same rows in order,
// for row `row` of them, and writes its part of `out`.
void merge_spans(const AttentionCall& call, const AttentionJob* first, int count, int row);

}  // namespace ridge::cpu
