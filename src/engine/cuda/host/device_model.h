// A model on the device, and steps through it: of up to 8 tokens by one kernel that reads at the
// memory's roof (decode_step.cuh), larger ones layer by layer (forward.cuh). No CUDA types: the
// runner, the tests and the benchmarks use it as ordinary C++17.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/weight_format.h"
#include "engine/cuda/layout/model_shape.h"
#include "engine/cuda/ranks/rank_exchange.h"
#include "engine/cuda/step/step_slice.h"
#include "engine/sampling/top_logits.h"

namespace ridge::cuda {

struct DeviceFound {
  std::string name;
  double free_bytes = 0;
};
DeviceFound find_device();  // the current one; throws Error where there is none
// Device memory of a model besides weights and KV cache (a cache that is not bf16 counts one layer
// of bf16 pages), on the current device.
double step_bytes(const ModelShape& shape, const StepBounds& bounds, int cache_pages);
// Throws Error, in one line: no device, one before Ampere, a shape that the current device has no
// code for.
void check_shape(const ModelShape& shape, KvFormat kv_format);
// Throws Error: a format of weights whose kernels this build leaves out (RIDGE_CUDA_FORMATS).
void check_built(WeightFormat format);

class DeviceModel {
 public:
  // Throws Error: no device, one without the instructions, a shape without code. `exchange`: with
  // the other ranks, where the shape is a part.
  static std::unique_ptr<DeviceModel> make(const ModelShape& shape, WeightFormat format,
                                           KvFormat kv_format, int cache_pages,
                                           const StepBounds& bounds = {},
                                           std::unique_ptr<RankExchange> exchange = nullptr);
  virtual ~DeviceModel() = default;

  // Queues the packing of a matrix; `second`: the up rows of gate_up. `layer` 0 for embed and head.
  // `expert`: the expert, or of matrices by head the attention head.
  virtual void load(MatrixKind kind, int layer, const FillRows& first, const FillRows& second = {},
                    int expert = 0) = 0;
  virtual void load(VectorKind kind, int layer, const std::vector<float>& values) = 0;
  virtual void finish_loading() = 0;  // waits; releases what only loading needs
  // All weights at random: deviation 0.02; norms 1 +- `norm_deviation`.
  virtual void randomize(uint64_t seed, float norm_deviation) = 0;
  // The cache too, as a context would fill it.
  virtual void randomize_cache(uint64_t seed) = 0;

  // Queues a step, by the path for its size (step_path.cuh). Slices have at least one token. Throws
  // Error, with nothing changed, where the step exceeds the bounds. `ends`: the index after the
  // last slice of each micro-batch; they run one after the other. One, but for stages of a
  // pipeline.
  virtual void step(const StepSlice* slices, const std::vector<int>& ends) = 0;
  // Logits of the wanted rows of the last step, [row][head_columns()]; waits.
  virtual const std::vector<float>& logits() = 0;
  // Queues the answers to one request per wanted row of the last step; two may be in flight.
  virtual void sample(const TopLogitsRequest* requests, int count) = 0;
  // Waits for the oldest answer that was not fetched. Valid until the next fetch().
  virtual const TopLogits* fetch(int& count) = 0;
  // Queues copies of the cache's pages, side by side: no page is both a source and a target.
  virtual void copy_pages(const KernelPageCopy* copies, int count) = 0;
  virtual void wait() = 0;

  // For benchmarks and checks: a step by the kernels of forward.cuh whatever its size, and a launch
  // of the decode kernel with `steps` steps, each row going on with its argmax. Both queue.
  virtual bool has_decode_kernel() const = 0;
  virtual void forward(const std::vector<StepSlice>& slices) = 0;
  virtual void decode(const std::vector<DecodeRow>& rows, int steps) = 0;
  // The argmax tokens of the last decode(), [step][row]; waits.
  virtual std::vector<int> argmax_of_steps() = 0;
  // Seconds of each of `repeats` of the same step or launch, by the device's clock.
  virtual std::vector<double> time_forward(const std::vector<StepSlice>& slices, int repeats) = 0;
  virtual std::vector<double> time_decode(const std::vector<DecodeRow>& rows, int steps,
                                          int repeats) = 0;

  // Times the operators of the steps that follow; such steps wait.
  virtual void keep_times(bool keep) = 0;
  // Operators of the last step with their seconds, in order; of the decode kernel also the waits at
  // its grid barrier. They add up to the device's time.
  virtual const std::vector<std::pair<const char*, double>>& operators() = 0;
  // SM 0's clocks in the last launch of the decode kernel, [operator][3] (decode.cuh).
  virtual std::vector<long long> timestamps() = 0;

  // The dequantized matrix, in the order of its 16-row blocks; for checks.
  virtual std::vector<float> unpacked(MatrixKind kind, int layer) = 0;
  virtual std::vector<float> vector(VectorKind kind, int layer) = 0;
  // What a page of the cache holds, [kv head][key, value][token][head_dim], for checks.
  virtual std::vector<float> cached(int layer, int page) = 0;
  virtual double weight_bytes() const = 0;           // read by a step
  virtual double cache_bytes_per_token() const = 0;  // all layers
  virtual std::string device() const = 0;
  virtual int sms() const = 0;
  // Whether the GEMMs of steps of `tokens` tokens, or of the largest chain, multiply in fp8
  // (step_path.cuh).
  virtual bool has_fp8_products(int tokens) const = 0;
};

}  // namespace ridge::cuda
