// A step of any number of tokens, an operator a kernel: prompts, large and mixed batches, and the
// models that the decode kernel has no code for. Launches depend on each other programmatically, so
// that weights arrive while the kernel before ends. Up to 128 tokens the products of a layer from
// one attention to the next are one kernel, with the norms folded in; of models with experts or
// norms after blocks few tokens have products of their own (few.cuh).
#pragma once

#include <utility>
#include <vector>

#include "engine/cuda/attention/attention.cuh"
#include "engine/cuda/gemm/linear.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/device_weights.cuh"
#include "engine/cuda/moe/experts.cuh"
#include "engine/cuda/rms_norm.cuh"

namespace ridge::cuda {

class Forward {
 public:
  // Throws Error for shapes it has no code for.
  Forward(const DeviceWeights& weights, int sms);
  ~Forward();
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  // Uploads what the step needs; `queue` may then be called any number of times.
  void prepare(cudaStream_t stream, const std::vector<ForwardSlice>& slices);
  void queue(cudaStream_t stream);
  int logit_rows() const { return int(wanted_.size()); }
  const float* logits() const { return logits_.data(); }  // [row][vocab]
  const int* chosen() const { return chosen_.data(); }    // [row], the likeliest

  // Times operators of each queue() with events, which keeps them apart.
  void keep_times(bool keep) { keep_times_ = keep; }
  std::vector<std::pair<const char*, double>> operators() const;  // waits

 private:
  void reserve(int tokens, int rows);
  void mark(cudaStream_t stream, const char* name);
  LinearArgs product(const Matrices& m, int index, const uint16_t* x, LinearArgs args) const;
  void linear(cudaStream_t stream, const Matrices& m, int index, const uint16_t* x,
              LinearArgs args);
  RmsNormArgs norm_args(const float* norm, const float* added_norm, const int* rows, int count);
  LinearArgs qkv_args(int layer) const;
  LinearArgs out_args() const;  // of the down product too
  LinearArgs head_args() const;
  LinearArgs expert_args() const;
  ExpertRouting routing() const;
  void attend(cudaStream_t stream, int layer);
  void mlp(cudaStream_t stream, int layer);
  void experts(cudaStream_t stream, int layer);
  void experts_of_few(cudaStream_t stream, int layer, const RmsNormArgs& norm);
  bool few_experts() const;
  void layers_apart(cudaStream_t stream);
  bool layers_chained(cudaStream_t stream);  // whether logits are done too
  bool chains() const;

  const DeviceWeights& w_;
  int sms_;
  Linear linear_, router_;
  Attention attention_;

  // Of the step.
  int tokens_ = 0, padded_ = 0, tile_ = 0;
  int slot_tile_ = 0, slots_ = 0;  // experts
  bool owed_ = false;              // their rows are not in the residual yet
  std::vector<int> wanted_;        // rows of which logits are wanted

  // Grown as steps ask for it.
  int room_ = 0, rows_room_ = 0;
  DeviceBuffer<float> residual_, qkv_, added_, logits_, squares_;
  DeviceBuffer<uint16_t> x_, q_, attended_, activated_;
  DeviceBuffer<int> token_, pages_, rows_, chosen_;
  DeviceBuffer<KvSlot> at_;
  DeviceBuffer<unsigned long long> best_;
  DeviceBuffer<float> router_logits_, expert_weight_, expert_rows_;
  DeviceBuffer<int> expert_, slot_, count_, source_, tile_matrix_, tile_count_;
  DeviceBuffer<unsigned> arrived_;
  DeviceBuffer<uint16_t> sorted_, sorted_activated_;

  bool keep_times_ = false;
  std::vector<const char*> names_;
  std::vector<cudaEvent_t> events_;
  size_t used_events_ = 0;
};

}  // namespace ridge::cuda
