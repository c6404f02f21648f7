// What a language model is: layers as data. The predictor, the loader and the engine read this one
// description; sizes as backends use them are a view of it (model/architecture.h).
//
// A layer is a list of matrices (Linear), each with the stage of the forward pass that uses it,
// plus the dimensions of what runs between them (attention core, state-space scan, routing).
// Parameter and byte counts, memory per rank and the matmuls of a step are all sums over the same
// list, so they cannot disagree.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace ridge {

struct Execution;  // model/execution.h

// Where in the forward pass a matrix is used. Matrices of one stage share their input.
enum class Stage : uint8_t {
  mixer_in,     // hidden -> q, k, v; or the in-projections of linear attention / SSM
  mixer_down,   // MLA: hidden -> compressed q and kv (q_a, kv_a)
  mixer_up_q,   // MLA: compressed q -> heads (q_b)
  mixer_up_kv,  // MLA: compressed kv -> heads (kv_b); absorbed into attention in decode
  index_in,     // DeepSeek sparse attention: the indexer's projections
  mixer_out,    // heads -> hidden
  router,       // hidden -> experts
  expert_in,    // gate and up of the routed experts
  expert_out,   // down of the routed experts
  shared_in,    // gate and up of the shared experts
  shared_out,   // down of the shared experts
  ffn_in,       // gate and up (or fc1) of a dense MLP
  ffn_out,      // down (or fc2)
  head,         // hidden -> vocabulary
  kCount
};

inline bool is_expert(Stage stage) {  // of a routed one
  return stage == Stage::expert_in || stage == Stage::expert_out;
}

// How tensor parallelism cuts a matrix.
enum class Shard : uint8_t { replicated, column, row };

// y = W x (+ b): `copies` matrices of out x in.
struct Linear {
  std::string name;  // "q_proj"
  Stage stage = Stage::ffn_in;
  int64_t in = 0, out = 0;
  int64_t copies = 1;  // experts
  bool bias = false;
  Shard shard = Shard::column;
  int64_t max_shards = 0;  // kv heads: no more pieces than this, replicated beyond; 0: no limit
  Format format;

  double parameters() const {
    return double(copies) * (double(in) * double(out) + (bias ? double(out) : 0));
  }
  double bytes() const { return parameters() * format.bytes(); }
};

enum class MixerKind : uint8_t {
  none,       // a layer that is only an MLP (Nemotron-H)
  attention,  // multi-head, grouped-query or multi-query softmax attention
  mla,        // multi-head latent attention (DeepSeek)
  linear,     // gated delta rule, lightning attention: a matrix state per head
  mamba2,     // state-space duality: a matrix state per head
  mamba1,     // selective scan: a state vector per channel
  conv,       // short convolution only (LFM2)
};

// What runs between the projections.
struct Mixer {
  MixerKind kind = MixerKind::attention;
  // attention and MLA
  int heads = 0, kv_heads = 0;
  int head_dim = 0;          // of q and k; MLA: nope + rope
  int v_head_dim = 0;        // of v
  int window = 0;            // sliding window or chunk in tokens; 0: the whole context
  bool chunked = false;      // `window` is a chunk boundary (Llama 4), not a sliding window
  bool shares_kv = false;    // reuses an earlier layer's KV cache and stores none (Gemma 3n/4)
  bool output_gate = false;  // attention output multiplied by a gate (Qwen3.5)
  bool qk_norm = false;
  // MLA
  int q_rank = 0, kv_rank = 0, rope_dim = 0;
  // DeepSeek sparse attention: an indexer picks `index_topk` tokens
  int index_heads = 0, index_dim = 0, index_topk = 0;
  // linear attention and SSM: state of value_heads x state_dim x value_dim, per sequence
  int key_heads = 0, value_heads = 0, state_dim = 0, value_dim = 0;
  int conv_kernel = 0, conv_channels = 0;
  Format state_format{DType::fp32, 32, "fp32"};

  bool operator==(const Mixer&) const = default;
};

struct Layer {
  Mixer mixer;
  std::vector<Linear> linears;  // in the order of Stage
  bool gated = true;            // MLP: gate and up (SwiGLU, GeGLU) or a single fc1
  int experts = 0, top_k = 0;   // routed experts; 0: none
  int norms = 2;                // norms over hidden in the layer
  double other_parameters = 0;  // norms, biases of routing, sinks, convolutions, A and D of SSMs

  bool has_moe() const { return experts > 0; }
  bool has(Stage stage) const;
};

struct LayerGroup {  // identical layers, whatever their place
  Layer layer;
  int count = 0;
};

// Parts beside the language model's layers: vision towers, multi-token prediction heads.
struct Extra {
  std::string name;
  double parameters = 0;
  Format format;
  bool counted = true;  // part of the published total
};

struct Model {
  std::string name;    // "llama-3-70b"
  std::string title;   // "Llama 3 70B"
  std::string family;  // the config's model_type: "llama"
  std::string source;  // "built in", or the path it was read from
  int hidden = 0;
  int64_t vocab = 0;
  int64_t max_context = 0;
  bool tied_embeddings = false;
  bool active_includes_embedding = true;  // publishers differ: gpt-oss leaves an untied one out
  Format embed_format;
  std::optional<Format> other_format;  // of other_parameters; none: as the embedding
  Linear head;                         // LM head; shares the embedding when tied
  std::vector<LayerGroup> groups;
  std::vector<uint16_t> order;  // group index of each layer, first to last
  double other_parameters = 0;  // final norm, learned positions, per-layer embeddings
  std::vector<Extra> extras;
  Format kv_format;                          // what the config or file asks for; bf16 unless said
  std::optional<double> exact_weight_bytes;  // from safetensors or GGUF headers
  std::vector<std::string> notes;            // what the reader assumed
  // What the engine needs beyond sizes. One of the two is set: `not_executed` says which field or
  // family the engine does not run, and is empty where it runs the model.
  std::shared_ptr<const Execution> execution;
  std::string not_executed;

  int layers() const { return static_cast<int>(order.size()); }
  double embed_parameters() const { return double(vocab) * hidden; }
  const Format& format_of_other() const { return other_format ? *other_format : embed_format; }
};

double parameters(const Model& model);                 // as published: extras that count included
double active_parameters(const Model& model);          // used per token: top-k experts only
const Format& main_weight_format(const Model& model);  // of most layer parameters
bool has_mxfp4_experts(const Model& model);
double weight_bytes(const Model& model);  // as stored; exact where headers were read
// KV cache (and nothing else) one more token costs in all layers, bytes, once past any window.
double kv_bytes_per_token(const Model& model, const Format& kv);
// The same while the context is still short of every window: the figure usually quoted.
double kv_bytes_per_token_full(const Model& model, const Format& kv);
// Bytes held for one sequence of `context` tokens: windows capped, SSM states included.
double sequence_bytes(const Model& model, double context, const Format& kv);

}  // namespace ridge
