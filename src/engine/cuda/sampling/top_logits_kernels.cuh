// The kernels of TopLogitsFinder (top_logits.cuh).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/sampling/top_logits.h"

namespace ridge::cuda {

// A row's request and answer as they cross.
struct TopLogitsRequestRow {
  uint64_t key;  // of the draw
  float scale;
  int count, token_count;
  int draw;
  int tokens[kMaxRequestedTokens];
};
struct TopLogitsRow {
  double sums[2];  // of exp(x - largest) and exp(scale (x - largest))
  Candidate candidates[kMaxCandidates];
  float requested[kMaxRequestedTokens];
  Candidate chosen;
  int broken, count;
};

// What a block of the first kernel leaves of its part of a row.
struct TopLogitsPart {
  float max, sums[2];  // sums relative to this maximum
  int broken;
  unsigned long long drawn;  // largest logit_key of score and token; 0: no draw
};

constexpr int kTopLogitsPart = 8192;  // logits of a block of the first kernel
constexpr int kTopLogitsGroup = 32;   // logits of which the first kernel finds the largest
constexpr int kTopLogitsMaxVocab = 512 * 1024;  // the second kernel holds all groups in registers

struct TopLogitsArgs {
  const float* logits;  // [row][vocab]
  int vocab, first;     // tokens of a row: all, or a part of them from `first` on
  int rows;
  const TopLogitsRequestRow* requests;  // [row]
  TopLogitsPart* parts;                 // [row][part]
  unsigned long long* groups;           // [row][part][kTopLogitsPart / kTopLogitsGroup]
  TopLogitsRow* answers;                // [row], the host's memory
  int* chosen;                          // [row]
};
constexpr int top_logits_parts(int vocab) {  // of a row
  return (vocab + kTopLogitsPart - 1) / kTopLogitsPart;
}
// Both queue dependent launches (device.cuh).
void find_top_logits(cudaStream_t stream, const TopLogitsArgs& args);
// For rows that want nothing but the argmax, which the step has found: [row]. `requests`, `parts`
// and `groups` are not read.
void pass_on_argmax(cudaStream_t stream, const TopLogitsArgs& args, const int* argmax);

}  // namespace ridge::cuda
