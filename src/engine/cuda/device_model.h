// A model on the device, and steps through it: of up to 8 tokens by one kernel that reads at the
// memory's roof (decode_step.cuh), larger ones layer by layer (forward.cuh). No CUDA types: the
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
#include "engine/cuda/ranks/rank_exchange.h"
#include "engine/sampling/top_logits.h"
#include "model/execution.h"

namespace ridge::cuda {

struct ModelShape {
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  bool gelu = false;            // gate: tanh's gelu; otherwise silu
  bool clamped_swiglu = false;  // gate: gpt-oss's, with its own product with `up`
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
  bool sinks = false, out_bias = false;  // of attention
  bool expert_bias = false;              // of the router and the experts
  bool post_norms = false;               // blocks' outputs are normed before they are added
  int experts = 0, top_k = 0, expert_ffn = 0;
  bool normalize_top_k = false;
  std::vector<bool> moe;  // by layer: experts instead of the dense MLP; empty: none
  RouterRules routing;
  int shared_ffn = 0;  // inner columns of the MLP that every token passes beside its experts

  // Llama 4. Chunked layers: a query sees the keys since the last multiple of `window`. Layers
  // without RoPE have no q and k norms either, and their queries at position p are multiplied by
  // 1 + temperature_scale ln(1 + floor((p + 1) / temperature_floor)).
  std::vector<bool> chunked, no_rope;  // by layer; empty: none
  float temperature_scale = 0, temperature_floor = 1;

  // Multi-head latent attention (LatentAttention of model/architecture.h): the cache holds
  // rows (attention/latent_page.h) for all heads; kv_heads, head_dim, window and qk_norm are not
  // used.
  struct Latent {
    int kv_rank = 0;         // 0: plain attention
    int q_rank = 0;          // 0: queries come from the hidden state directly
    int nope = 0, rope = 0;  // elements of a query head that are not rotated, and that are
    int value = 0;           // elements of a value head
    float norm_eps = 1e-6f;
    int q_head() const { return nope + rope; }
    explicit operator bool() const { return kv_rank > 0; }
  } latent;

  // Where it is one rank's part of a model (engine/ranks/). -1: all.
  bool partial_sums =
      false;           // ranks cut the layers: they add up what a block gives to the residual
  bool embeds = true;  // otherwise the residual comes from the stage before
  int embed_first = 0, embed_rows = -1;     // tokens whose embedding is here; ranks add up
  int head_first = 0, head_rows = -1;       // 0 rows: the residual goes to the next stage
  int expert_first = 0, expert_count = -1;  // experts that are here; the router knows all

  bool cuts_embedding() const { return embeds && embed_rows >= 0; }
  int embedded_tokens() const { return cuts_embedding() ? embed_rows : vocab; }
  int head_columns() const { return head_rows < 0 ? vocab : head_rows; }  // of logits
  int experts_here() const { return expert_count < 0 ? experts : expert_count; }
  bool is_part() const { return partial_sums || !embeds || head_columns() == 0; }
  bool is_moe(int layer) const { return layer < int(moe.size()) && moe[size_t(layer)]; }
  bool is_chunked(int layer) const { return layer < int(chunked.size()) && chunked[size_t(layer)]; }
  bool has_rope(int layer) const { return layer >= int(no_rope.size()) || !no_rope[size_t(layer)]; }
  int chunk() const {  // tokens of a chunk, of which a model has one size; 0: no layer is chunked
    for (int layer = 0; layer < layers; ++layer) {
      if (is_chunked(layer)) return window[size_t(layer)];
    }
    return 0;
  }
  // Has operators that only the path per operator has (step_path.cuh).
  bool needs_operators() const {
    return latent || shared_ffn > 0 || !routing.is_plain() || chunk() > 0 || !no_rope.empty();
  }
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
  shared_gate_up,
  shared_down,
  q_a,
  kv_a,
  absorb,  // of one head (`expert`): W_UK^T, [kv_rank x nope]
  expand,  // of one head: W_UV, [value x kv_rank]
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
  qkv_bias,
  out_bias,
  sinks,                // [heads]
  router_bias,          // [experts, padded to 16]
  expert_gate_up_bias,  // [expert][8 of gate, 8 of up, ...]: the order of the tiles' rows
  expert_down_bias,     // [expert][hidden]
  router_correction,    // [experts]
  q_a_norm,             // [q_rank]
  kv_a_norm             // [kv_rank]
};

// What the steps of a run may hold at most. All device memory is allocated from these bounds.
struct StepBounds {
  int tokens = 512;       // of one step
  int sequences = 64;     // of one step
  int logit_rows = 64;    // of one step
  int decode_steps = 16;  // of one decode() launch
};
// The sequences of one step may see so many times the pages of the cache together: pages may be
// shared, and a shared page counts for each of its sequences.
constexpr int kMaxSharing = 4;

// A token of a step: an id, or at -1 - r the token that row r of the last sample() chose.
using TokenInput = int;

// One token of a decode kernel's step: `past` of its sequence are cached before the step, `first`
// is the step's first row of its sequence (rows of one sequence follow each other and lie in one
// page of 16), `pages` cover its position.
struct DecodeRow {
  TokenInput token = 0;
  int past = 0, first = 0;
  const int* pages = nullptr;
  int page_count = 0;
};

// One sequence's tokens of a step, after `past` cached ones; logits of the last `logits` of them
// are wanted.
struct StepSlice {
  const TokenInput* tokens = nullptr;
  int count = 0, past = 0;
  const int* pages = nullptr;  // of 16 tokens, up to the last token's
  int page_count = 0, logits = 0;
};

// A page of 16 tokens and where it is copied to, in every layer.
struct KernelPageCopy {
  int from = 0, to = 0;
};

// Writes rows [first, first + count) of a matrix as bf16. Several threads call it concurrently,
// none after load() has returned.
using FillRows = std::function<void(int64_t first, int64_t count, uint16_t* to)>;

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
  // Whether the GEMMs of the largest steps, of so many tokens or of a chain's, multiply in fp8
  // (step_path.cuh).
  virtual bool has_fp8_products(int tokens) const = 0;
};

}  // namespace ridge::cuda
