// The best of rows of logits that lie on the device (engine/best.h), by two small kernels: only
// what a sampler needs crosses to the host.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/best.h"
#include "engine/cuda/device.cuh"

namespace ridge::cuda {

// A row's question and answer as they cross.
struct AskRow {
  float scale;
  int count, token_count;
  int tokens[kMostAsked];
};
struct BestRow {
  double sums[2];             // of exp(x - largest) and exp(scale (x - largest))
  Candidate best[kMostBest];  // `count` of them
  float logits[kMostAsked];   // of the tokens asked for
  int broken, count;
};
// What a block of the first kernel leaves of its part of a row.
struct BestPart {
  float max, sums[2];  // above its own largest
  int broken;
};

class BestFinder {
 public:
  BestFinder() = default;
  ~BestFinder() { cudaFreeHost(answers_); }
  BestFinder(const BestFinder&) = delete;
  BestFinder& operator=(const BestFinder&) = delete;

  // One for each ask, which each stand for a row of `vocab` logits. Waits; valid until the next.
  const std::vector<Best>& find(cudaStream_t stream, const float* logits, int vocab,
                                const std::vector<Ask>& asks);
  // The kernels alone, with the asks of the last find().
  void queue(cudaStream_t stream, const float* logits, int vocab, int rows) const;

 private:
  void reserve(int rows, int vocab);

  int rows_room_ = 0, parts_room_ = 0;
  Buffer<AskRow> asks_;
  Buffer<BestPart> parts_;
  Buffer<unsigned long long> groups_;
  BestRow* answers_ = nullptr;  // the host's memory, which the device writes
  std::vector<AskRow> questions_;
  std::vector<Best> best_;
};

}  // namespace ridge::cuda
