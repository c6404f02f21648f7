// A model on the device, and steps through it: of up to 8 tokens by one kernel that reads at the
// memory's roof (decode.cuh), of any size by a kernel an operator (forward.cuh). No CUDA types: the
// runner, the tests and the benchmarks use it as ordinary C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/layout/weight_format.h"
#include "engine/sampling/top_logits.h"

namespace ridge::cuda {

struct ModelShape {
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  bool gelu = false;  // gate: tanh's gelu; otherwise silu
  float norm_eps = 1e-5f, embed_scale = 1, query_scale = 0;
  float attention_softcap = 0, logit_softcap = 0;
  std::vector<int> window;  // by layer; empty or 0: none
  struct RopeTable {
    std::vector<float> frequency;  // head_dim / 2
    float magnitude = 1;
  };
  std::vector<RopeTable> ropes;
  std::vector<int> rope;  // by layer, which of them; empty: the first
  bool qk_norm = false, qkv_bias = false;
  bool post_norms = false;  // blocks' outputs are normed before they are added
  int experts = 0, top_k = 0, expert_ffn = 0;
  bool normalize_top_k = false;
  std::vector<bool> moe;  // by layer: experts instead of the dense MLP; empty: none

  bool is_moe(int layer) const { return layer < int(moe.size()) && moe[size_t(layer)]; }
};

enum class MatrixKind : uint8_t {
  embed,
  q,
  k,
  v,
  out,
  gate_up,
  down,
  router,
  expert_gate_up,
  expert_down,
  head
};
enum class VectorKind : uint8_t {
  attn_norm,
  post_attn_norm,
  mlp_norm,
  post_mlp_norm,
  final_norm,
  q_norm,
  k_norm,
  qkv_bias
};

// One token of a step: `past` of its sequence are cached before the step, `first` is the step's
// first row of its sequence (rows of one sequence follow each other and lie in one page of 16),
// `pages` cover its position.
struct DecodeRow {
  int token = 0, past = 0, first = 0;
  const int* pages = nullptr;
  int page_count = 0;
};

// One sequence's tokens of a step of any size, after `past` cached ones; logits of the last
// `logits` of them are wanted.
struct ForwardSlice {
  const int* tokens = nullptr;
  int count = 0, past = 0;
  const int* pages = nullptr;
  int page_count = 0, logits = 0;
};

// Writes rows [first, first + count) of a matrix as bf16.
using FillRows = std::function<void(int64_t first, int64_t count, uint16_t* to)>;

struct DeviceFound {
  std::string name;
  double free_bytes = 0;
};
DeviceFound find_device();  // the current one; throws Error where there is none

class DeviceModel {
 public:
  // Throws Error: no device, one without the instructions, a shape the kernel has no code for.
  static std::unique_ptr<DeviceModel> make(const ModelShape& shape, WeightFormat format,
                                           KvFormat kv_format, int cache_pages);
  virtual ~DeviceModel() = default;

  // Packs a matrix; `second`: the up rows of gate_up. `layer` 0 for embed and head.
  virtual void load(MatrixKind kind, int layer, const FillRows& first, const FillRows& second = {},
                    int expert = 0) = 0;
  virtual void load(VectorKind kind, int layer, const std::vector<float>& values) = 0;
  // All of it at random: deviation 0.02; norms 1 +- `norm_deviation`.
  virtual void randomize(uint64_t seed, float norm_deviation) = 0;
  // The cache too, as a context would fill it.
  virtual void randomize_cache(uint64_t seed) = 0;

  // Whether this model's shape has a kernel for up to 8 tokens; forward() runs them all.
  virtual bool decodes() const = 0;
  // One step of any number of tokens; returns when queued. logits(): of the wanted rows, in order.
  virtual void forward(const std::vector<ForwardSlice>& slices) = 0;
  // Seconds of each of `repeats` of the same step by the device's clock.
  virtual std::vector<double> time_forward(const std::vector<ForwardSlice>& slices,
                                           int repeats) = 0;
  // Runs `steps` (each row goes on with its likeliest token) and returns when queued; row_count at
  // most 8.
  virtual void run(const std::vector<DecodeRow>& rows, int steps) = 0;
  virtual void wait() = 0;
  // Of the last step, [row][vocab]; waits.
  virtual const std::vector<float>& logits() = 0;
  // The likeliest tokens, [step][row] of run(), [row] of forward(); waits.
  virtual std::vector<int> chosen() = 0;
  // What is asked of the rows of the last step, one ask each; waits. Valid until the next.
  virtual const std::vector<TopLogits>& top_logits(
      const std::vector<TopLogitsRequest>& requests) = 0;

  // Seconds of one run() by the device's clock; the least and the median of `repeats`.
  virtual std::vector<double> time(const std::vector<DecodeRow>& rows, int steps, int repeats) = 0;
  // Operators of the last step with their seconds, in order, and what lies between them
  // ("meetings"), when asked for before it by keep_stamps(); they add up to the device's time.
  // Waits.
  virtual std::vector<std::pair<const char*, double>> operators() = 0;
  // Clocks of SM 0 in the last run, [operator][3] (decode_shared.cuh), when asked for before it.
  virtual void keep_stamps(bool keep) = 0;
  virtual std::vector<long long> stamps() = 0;

  // The dequantized matrix, in the order of its 16-row blocks; for checks.
  virtual std::vector<float> unpacked(MatrixKind kind, int layer) = 0;
  virtual std::vector<float> vector(VectorKind kind, int layer) = 0;
  // What a page of the cache holds, [kv head][key, value][token][head_dim], for checks.
  virtual std::vector<float> cached(int layer, int page) = 0;
  virtual double weight_bytes() const = 0;           // read by a step
  virtual double cache_bytes_per_token() const = 0;  // all layers
  virtual std::string device() const = 0;
  virtual int sms() const = 0;
};

}  // namespace ridge::cuda
