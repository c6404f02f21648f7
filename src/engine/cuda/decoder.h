// A model on the device, and steps of up to 16 tokens through it. No CUDA types: the runner, the
// tests and the benchmarks use it as ordinary C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/weight_format.h"

namespace ridge::cuda {

struct DecoderShape {
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  bool gelu = false;  // gate: tanh's gelu; otherwise silu
  float norm_eps = 1e-5f, embed_scale = 1, query_scale = 0;
  float attention_softcap = 0, logit_softcap = 0;
  std::vector<int> window;  // by layer; empty or 0: none
  std::vector<float> rope_frequency;
  float rope_magnitude = 1;
  bool qk_norm = false, qkv_bias = false;
};

enum class Part : uint8_t { embed, q, k, v, out, gate_up, down, head };
enum class Vectors : uint8_t { attn_norm, mlp_norm, final_norm, q_norm, k_norm, qkv_bias };

// One token of a step: `past` of its sequence are cached before the step, `first` is the step's
// first row of its sequence (rows of one sequence follow each other and lie in one page of 16),
// `pages` cover its position.
struct DecodeRow {
  int token = 0, past = 0, first = 0;
  const int* pages = nullptr;
  int page_count = 0;
};

// Writes rows [first, first + count) of a matrix as bf16.
using FillRows = std::function<void(int64_t first, int64_t count, uint16_t* to)>;

struct DeviceFound {
  std::string name;
  double free_bytes = 0;
};
DeviceFound find_device();  // the current one; throws Error where there is none

class Decoder {
 public:
  // Throws Error: no device, one without the instructions, a shape the kernel has no code for.
  static std::unique_ptr<Decoder> make(const DecoderShape& shape, WeightFormat format,
                                       int cache_pages);
  virtual ~Decoder() = default;

  // Packs a matrix; `second`: the up rows of gate_up. `layer` 0 for embed and head.
  virtual void load(Part part, int layer, const FillRows& first, const FillRows& second = {}) = 0;
  virtual void load(Vectors which, int layer, const std::vector<float>& values) = 0;
  // All of it at random: deviation 0.02; norms 1 +- `norm_deviation`.
  virtual void randomize(uint64_t seed, float norm_deviation) = 0;
  // The cache too, as a context would fill it.
  virtual void randomize_cache(uint64_t seed) = 0;

  // Runs `steps` (each row goes on with its likeliest token) and returns when queued; row_count at
  // most 16.
  virtual void run(const std::vector<DecodeRow>& rows, int steps) = 0;
  virtual void wait() = 0;
  // Of the last step, [row][vocab]; waits.
  virtual const std::vector<float>& logits() = 0;
  virtual std::vector<int> chosen() = 0;  // [step][row]

  // Seconds of one run() by the device's clock; the least and the median of `repeats`.
  virtual std::vector<double> time(const std::vector<DecodeRow>& rows, int steps, int repeats) = 0;
  // Clocks of SM 0 in the last run, [operator][4] (decode_shared.cuh), when asked for before it.
  virtual void keep_stamps(bool keep) = 0;
  virtual std::vector<long long> stamps() = 0;

  virtual std::vector<float> unpacked(Part part, int layer) = 0;  // in blocks' order, for checks
  virtual std::vector<float> vector(Vectors which, int layer) = 0;
  virtual double weight_bytes() const = 0;           // read by a step
  virtual double cache_bytes_per_token() const = 0;  // all layers
  virtual std::string device() const = 0;
  virtual int sms() const = 0;
};

}  // namespace ridge::cuda
