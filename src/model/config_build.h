// Building layers from a config: the parts shared by the config_*.cc files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/config_family.h"
#include "model/config_fields.h"
#include "model/execution.h"
#include "model/model.h"

namespace ridge {

struct Architecture;

// What every layer of one model is read from.
struct ConfigContext {
  ConfigContext(const Fields& fields_in, const Family& family_in)
      : fields(fields_in), family(family_in) {}

  const Fields& fields;  // the language model's own object
  const Family& family;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t context = 0;                   // max_context
  std::vector<std::string> layer_types;  // one a layer, or empty
  std::vector<std::string>* notes = nullptr;

  bool is(const Toggle& toggle) const;
  void note(const std::string& text) const;  // once each
  // The layer's entry in `layer_types`, or "" where there is none.
  std::string_view type_of(int index) const;
};

// Fields with several names.
inline const Fields::Keys kContextKeys = {
    "max_position_embeddings", "n_positions",      "max_seq_len", "seq_length",
    "max_sequence_length",     "model_max_length", "n_ctx",       "max_context_length"};
inline const Fields::Keys kKvHeadKeys = {"num_key_value_heads", "num_kv_heads"};
inline const Fields::Keys kHeadDimKeys = {"head_dim", "kv_channels"};
inline const Fields::Keys kExpertKeys = {"num_local_experts", "num_experts", "n_routed_experts",
                                         "moe_num_experts"};
inline const Fields::Keys kTopKeys = {
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k",
    "moe_top_k",           "top_k_experts"};

// Linears. `max_shards`: see Linear.
Linear column(const char* name, Stage stage, int64_t in, int64_t out, int64_t max_shards = 0);
Linear row(const char* name, Stage stage, int64_t in, int64_t out, int64_t max_shards = 0);
Linear replicated(const char* name, Stage stage, int64_t in, int64_t out);
inline void add_linear(Layer& layer, Linear linear, bool bias = false) {
  linear.bias = bias;
  layer.linears.push_back(std::move(linear));
}

// The largest state of a recurrent layer (Mamba, linear attention) that a config may ask for.
inline constexpr int64_t kMaxState = 1 << 20;

inline bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

double norm_parameters(NormKind kind, int64_t channels);
// Sets `norms` and adds their parameters.
void add_norms(Layer& layer, const ConfigContext& context, int count);

// Adds a layer to its group, or starts one: layers alike share a group whatever their place.
void append_layer(Model& model, Layer layer);

// config_attention.cc
struct AttentionConfig {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, o_bias = false;
  bool gate = false;          // q_proj also makes a gate for the output
  bool value_is_key = false;  // no v_proj: the keys serve as values
  bool no_kv = false;         // an earlier layer's keys and values are used
  QkNorm qk_norm = QkNorm::none;
};
AttentionConfig read_attention(const ConfigContext& context);
void add_attention(Layer& layer, const ConfigContext& context, const AttentionConfig& shape);
struct Window {
  int64_t tokens = 0;    // 0: the whole context
  bool chunked = false;  // a chunk, not a sliding window
};
// As the config says it, also where it is longer than the context.
Window window_of(const ConfigContext& context, int index);
void add_window(Layer& layer, const ConfigContext& context, int index);
void add_mla(Layer& layer, const ConfigContext& context, bool indexer);

// config_ffn.cc
struct MoeShape {
  int64_t experts = 0, top_k = 0, width = 0;
  int64_t shared_width = 0;  // of all shared experts together
  bool gated = true, bias = false, router_bias = false;
};
void add_mlp(Layer& layer, const ConfigContext& context, int64_t width);
void add_moe(Layer& layer, const ConfigContext& context, const MoeShape& shape);
MoeShape read_moe(const ConfigContext& context);
bool is_moe_layer(const ConfigContext& context, int index);
// The dense MLP's width: intermediate_size and its other names.
int64_t mlp_width(const ConfigContext& context);
// An MLP or a mixture of experts, whichever the config says for this layer.
void add_ffn(Layer& layer, const ConfigContext& context, int index);

// Layer functions of the families. The plain one serves most of them.
Layer decoder_layer(const ConfigContext& context, int index);
Layer deepseek_layer(const ConfigContext& context, int index);
Layer deepseek_sparse_layer(const ConfigContext& context, int index);

// architecture.cc: the sizes in architecture_of(). Throws Error for those that no backend has.
Architecture executed_sizes(const Model& model);

// config_execution.cc, execution_families.cc

// What a file's tensors say beyond the config that its metadata became (GGUF).
struct TensorFacts {
  std::function<void(Model&)> correct;  // formats and biases
  // Changes what was read, or throws Error for what the engine does not run.
  std::function<void(Execution&, const Model&)> complete;
};
// Such a config is complete: class defaults do not hold.
Model read_config(const nlohmann::json& config, std::string_view where, const TensorFacts& facts);

// Sets `execution` or `not_executed`; `nested`: the config's own object lies in `outer`.
void set_execution(Model& model, const ConfigContext& context, const Fields& outer, bool nested,
                   const TensorFacts* facts);

using Finish = void(Execution&, const Model&, const ConfigContext&, const Fields& outer);
Finish finish_gemma, finish_gpt_oss, finish_deepseek, finish_llama4;

// config_special.cc
Layer chatglm_layer(const ConfigContext& context, int index);
Layer dbrx_layer(const ConfigContext& context, int index);
Layer deci_layer(const ConfigContext& context, int index);
Layer falcon_layer(const ConfigContext& context, int index);
Layer glm_dsa_layer(const ConfigContext& context, int index);
Layer gpt_bigcode_layer(const ConfigContext& context, int index);
Layer gpt_neo_layer(const ConfigContext& context, int index);
Layer gpt_oss_layer(const ConfigContext& context, int index);
Layer llama4_layer(const ConfigContext& context, int index);
Layer mpt_layer(const ConfigContext& context, int index);
Layer openelm_layer(const ConfigContext& context, int index);
Layer qwen1_layer(const ConfigContext& context, int index);
Layer step3_layer(const ConfigContext& context, int index);

// config_gemma.cc
Layer gemma3n_layer(const ConfigContext& context, int index);
Layer gemma4_layer(const ConfigContext& context, int index);
double per_layer_embedding_parameters(const ConfigContext& context);

// config_mamba.cc
Layer bamba_layer(const ConfigContext& context, int index);
Layer falcon_h1_layer(const ConfigContext& context, int index);
Layer granite_hybrid_layer(const ConfigContext& context, int index);
Layer jamba_layer(const ConfigContext& context, int index);
Layer mamba2_layer(const ConfigContext& context, int index);
Layer mamba_layer(const ConfigContext& context, int index);
Layer nemotron_h_layer(const ConfigContext& context, int index);

// config_state.cc
Layer kimi_linear_layer(const ConfigContext& context, int index);
Layer lfm2_layer(const ConfigContext& context, int index);
Layer minimax_layer(const ConfigContext& context, int index);
Layer qwen_delta_layer(const ConfigContext& context, int index);

}  // namespace ridge
