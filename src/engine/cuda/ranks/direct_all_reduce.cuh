// All-reduce between ranks that reach each other's device memory: GPUs of one host, or ranks that
// share a GPU.
//
// Every rank has a region that the others map. One kernel per rank and sum; block b works with the
// blocks b of the other ranks only:
//   one-shot   copy the own values into the own region; wait for all; add up all regions
//   two-shot   the same, but each rank adds up one part, into its region; wait; copy all parts
// One-shot reads ranks - 1 times the bytes, two-shot waits twice. An element is added in the order
// of the ranks either way, so the bits do not depend on the choice.
//
//   region:  flags [2 waits][rank][block] | values [2][capacity] | sums [2][capacity]
// A rank announces what it wrote in the flags of every other rank's region, and polls its own. The
// two sets of values and sums are used in turn: who writes one of them has waited for all in the
// sum before, so all have read what was in it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

constexpr int kMaxDirectRanks = 8, kMaxDirectBlocks = 64;

constexpr size_t direct_region_bytes(size_t capacity) {  // of `capacity` floats, a multiple of 4
  return 2 * kMaxDirectRanks * kMaxDirectBlocks * sizeof(unsigned) + 4 * capacity * sizeof(float);
}

struct DirectAllReduceArgs {
  float* values;  // [count], in place
  size_t count;   // a multiple of 4, at most the capacity
  size_t capacity;
  uint8_t* region[kMaxDirectRanks];  // of each rank, as this one sees it
  int rank, ranks;
  unsigned turn;  // counts the sums, from 1
  bool two_shot;
  uint64_t limit_ns;  // of one wait
  unsigned* ended;    // device memory: not 0: a wait took too long, and no sum waits any more
  const volatile int* stop;  // the host's memory: not 0: nobody wants the result
  volatile int* missing;     // the host's memory: 1 + the rank that did not come
};
// Queues a dependent launch (device.cuh).
void direct_all_reduce(cudaStream_t stream, const DirectAllReduceArgs& args);

}  // namespace ridge::cuda
