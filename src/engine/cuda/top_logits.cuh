// The best of rows of logits that lie on the device (engine/best.h), by two small kernels: only
// what a sampler needs crosses to the host.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/device.cuh"
#include "engine/sampling/top_logits.h"

namespace ridge::cuda {

// A row's question and answer as they cross.
struct RequestRow {
  float scale;
  int count, token_count;
  int tokens[kMaxRequestedTokens];
};
struct BestRow {
  double sums[2];                     // of exp(x - largest) and exp(scale (x - largest))
  Candidate best[kMaxCandidates];     // `count` of them
  float logits[kMaxRequestedTokens];  // of the tokens asked for
  int broken, count;
};
// What a block of the first kernel leaves of its part of a row.
struct BestPart {
  float max, sums[2];  // above its own largest
  int broken;
};

class TopLogitsFinder {
 public:
  TopLogitsFinder() = default;
  ~TopLogitsFinder() { cudaFreeHost(answers_); }
  TopLogitsFinder(const TopLogitsFinder&) = delete;
  TopLogitsFinder& operator=(const TopLogitsFinder&) = delete;

  // One for each request, which each stand for a row of `vocab` logits. Waits; valid until the
  // next.
  const std::vector<TopLogits>& find(cudaStream_t stream, const float* logits, int vocab,
                                     const std::vector<TopLogitsRequest>& requests);
  // The kernels alone, with the requests of the last find().
  void queue(cudaStream_t stream, const float* logits, int vocab, int rows) const;

 private:
  void reserve(int rows, int vocab);

  int rows_room_ = 0, parts_room_ = 0;
  DeviceBuffer<RequestRow> requests_;
  DeviceBuffer<BestPart> parts_;
  DeviceBuffer<unsigned long long> groups_;
  BestRow* answers_ = nullptr;  // the host's memory, which the device writes
  std::vector<RequestRow> questions_;
  std::vector<TopLogits> top_logits_;
};

}  // namespace ridge::cuda
