// Steps of at most 8 tokens by the decode kernel (decode/decode.cuh): its buffers, its arguments,
// its launches and the times of its operators.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/device/step_inputs.cuh"
#include "engine/cuda/device/workspace.h"
#include "engine/cuda/layout/device_weights.cuh"
#include "engine/cuda/step/operator_timer.cuh"
#include "engine/cuda/step/step_slice.h"

namespace ridge::cuda {

// The kernel's memory between operators and launches; decode.cuh has the layouts.
struct DecodeBuffers {
  DecodeBuffers(Workspace& workspace, const ModelShape& shape, int sms, int max_steps);

  float *residual, *block_output, *sums_of_squares, *qkv_out, *logits;
  uint16_t *normed, *attention_out, *mlp_hidden;
  TaggedFloat *router_sums, *split_states;
  unsigned* grid_barrier;
  unsigned long long* argmax_keys;
  int* next_tokens;       // [step][row]
  long long* timestamps;  // [step][operator][3]
  size_t square_count, qkv_count;
};

class DecodeStep {
 public:
  DecodeStep(const DeviceWeights& weights, KernelSet kernels, int sms, const DecodeBuffers& buffers,
             int max_steps);
  int most_rows() const { return most_rows_; }  // of a launch on this device; 0: the kernel cannot

  static size_t input_bytes(size_t context_pages);
  // Adds the launch's inputs; the caller uploads them before launch(). `steps` > 1: every row goes
  // on with its argmax. Clears activations on `stream` where the number of rows changes their
  // layout.
  void prepare(cudaStream_t stream, StepInputs& inputs, const DecodeRow* rows, int count,
               int steps);
  void launch(cudaStream_t stream, bool keep_times);

  int* tokens() const { return const_cast<int*>(args_.tokens); }  // [row], of the launch's inputs
  const float* logits() const { return buffers_.logits; }         // [row][vocab], of the last step
  // [row] of the last step; argmax of all steps: [step][row] from the start.
  const int* argmax() const {
    return buffers_.next_tokens + size_t(args_.steps - 1) * size_t(args_.row_count);
  }
  const int* argmax_of_steps() const { return buffers_.next_tokens; }
  int rows() const { return args_.row_count; }
  int steps() const { return args_.steps; }

  // SM 0's clocks of the last launch, [operator][3] (decode.cuh). The stream must be idle.
  std::vector<long long> timestamps() const;
  // The operators of the last launch, which took `seconds`: SM 0's clocks scaled to them. What lies
  // between two operators is the wait at the grid barrier.
  void append_times(double seconds, OperatorTimes& times) const;

 private:
  DecodeArgs model_args() const;
  void clear_activations(cudaStream_t stream);

  const DeviceWeights& w_;
  int sms_, max_steps_;
  DecodeBuffers buffers_;
  DecodeArgs args_;
  int most_rows_;
  unsigned arrivals_[2] = {0, 0};  // at the two grid barriers, of all launches so far
  int padded_rows_ = 0;            // the layout of activations
};

}  // namespace ridge::cuda
