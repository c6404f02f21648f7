// What samplers need of rows of logits (engine/sampling/top_logits.h), found on the device: only
// the answers cross to the host. The chosen token of each row also stays on the device, as an input
// of the next step.
//
// queue() only queues kernels; fetch() waits for the oldest answer. Two answers may be in flight:
// requests and answers have two pinned buffers in turn.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/workspace.h"
#include "engine/cuda/sampling/top_logits_kernels.cuh"
#include "engine/sampling/top_logits.h"

namespace ridge::cuda {

class TopLogitsFinder {
 public:
  // Of rows that are a part of the vocabulary (ranks): `vocab` tokens from `first` on.
  TopLogitsFinder(int max_rows, int vocab, int first = 0);
  ~TopLogitsFinder();
  TopLogitsFinder(const TopLogitsFinder&) = delete;
  TopLogitsFinder& operator=(const TopLogitsFinder&) = delete;
  static size_t memory_bytes(int max_rows, int vocab);

  // Queues the answers to `count` requests, one per row of `logits`. `argmax`: the argmax of each
  // row, if the step has left it on the device; rows that want no more cost nothing further then.
  // Throws Error where two answers are not fetched yet.
  void queue(cudaStream_t stream, const float* logits, const int* argmax,
             const TopLogitsRequest* requests, int count);
  // Waits for the oldest answer that was not fetched. Valid until the next fetch().
  const TopLogits* fetch(int& count);

  // The chosen tokens of the last queue(), [row] on the device, and how many there are.
  const int* chosen() const { return buffers_.chosen; }
  int chosen_count() const { return chosen_count_; }
  // The two kernels alone, with the requests of the last queue(); for timing.
  void queue_kernels(cudaStream_t stream, const float* logits, int rows);

 private:
  static constexpr int kInFlight = 2;
  struct Buffers {  // on the device
    Buffers(Workspace& workspace, int max_rows, int vocab);
    TopLogitsRequestRow* requests;  // [row]
    TopLogitsPart* parts;           // [row][part]
    unsigned long long* groups;     // [row][group]: the largest key of 32 logits
    int* chosen;                    // [row]
  };
  struct Answer {                             // in flight
    TopLogitsRequestRow* requests = nullptr;  // pinned
    TopLogitsRow* rows = nullptr;             // pinned; the device writes it
    std::vector<int> counts;                  // of candidates, as requested
    cudaEvent_t done = nullptr;
    int row_count = 0;
    bool argmax_only = false;
  };

  void write_request(const TopLogitsRequest& request, TopLogitsRequestRow& to) const;
  TopLogitsArgs args(const Answer& answer, const float* logits, int rows) const;
  void read_row(const Answer& answer, int row, TopLogits& to) const;

  int max_rows_, vocab_, first_;
  DeviceBuffer<uint8_t> memory_;
  Buffers buffers_;
  Answer answers_[kInFlight];
  size_t queued_ = 0, fetched_ = 0;  // answers, since the beginning
  int chosen_count_ = 0;
  std::vector<TopLogits> top_logits_;  // [max_rows], of the last fetch()
};

}  // namespace ridge::cuda
