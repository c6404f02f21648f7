// Converts a GGUF's metadata to an Architecture: model/gguf_config.h converts it to a Hugging Face
// config, and architecture_from_config reads that. This file adds what only execution needs.
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "engine/weights/architecture.h"
#include "model/gguf_config.h"

namespace ridge {

namespace {

using nlohmann::json;

void check_tensors(const GgufMetadata& metadata) {
  const auto& tensors = metadata.header().tensors;
  const auto embedding = tensors.find("token_embd.weight");
  if (embedding == tensors.end() || embedding->second.shape.size() != 2) {
    throw Error("{}: token_embd.weight is missing: a model needs its tensors to run",
                metadata.where());
  }
  const bool gpt_oss = metadata.architecture() == "gpt-oss";
  for (const char* name : {"blk.0.attn_output.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias"}) {
    if (metadata.tensor(name) && !gpt_oss) {
      throw Error("{}: {} is not executed by the engine", metadata.where(), name);
    }
  }
}

void check_head_sizes(const Architecture& made, const GgufMetadata& metadata) {
  if (made.latent) return;  // the config was made from them
  const auto check = [&](const char* key, int expected) {
    if (metadata.number(key, expected) != expected) {
      throw Error("{}: {}.{} is not {}, which is not executed", metadata.where(),
                  metadata.architecture(), key, expected);
    }
  };
  check("attention.key_length", made.head_dim);
  check("attention.value_length", made.head_dim);
  check("rope.dimension_count", made.ropes[0].dims());
}

// The factors are tensors, which load_weights applies.
void set_long_rope(Architecture& made, const GgufMetadata& metadata) {
  const double original = metadata.number("rope.scaling.original_context_length", 0);
  const double magnitude = metadata.number("rope.scaling.attn_factor", 1);
  if (!(original >= 0 && original < 1e9) || !(magnitude >= 1e-6 && magnitude <= 1e6)) {
    throw Error("{}: {}.rope.scaling is out of range", metadata.where(), metadata.architecture());
  }
  made.ropes[0].original_context = int(original);
  made.ropes[0].magnitude = float(magnitude);
}

void add_token_ids(Architecture& made, const GgufMetadata& metadata) {
  json config = json::object();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (const json* id = metadata.value(key)) config["eos_token_id"] = *id;
    add_generation_config(made, config, metadata.where());
  }
  if (const json* id = metadata.value("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  add_generation_config(made, config, metadata.where());
}

}  // namespace

Architecture architecture_from_gguf(const GgufHeader& header, const std::string& where) {
  const GgufMetadata metadata(header, where);
  json config = config_from_gguf(metadata);
  // A config's attention_bias also covers the output projection; check_tensors rejects that bias,
  // and the biases of q, k and v are found from the tensors below.
  config.erase("attention_bias");
  // llama.cpp keeps Gemma's embedding scale in f32.
  if (metadata.architecture().starts_with("gemma")) config["torch_dtype"] = "float32";
  Architecture made = architecture_from_config(config, where);
  check_tensors(metadata);
  check_head_sizes(made, metadata);
  made.norm_plus_one = false;  // GGUF files already store 1 + w
  made.qkv_bias = metadata.tensor("blk.0.attn_q.bias") || metadata.tensor("blk.0.attn_k.bias") ||
                  metadata.tensor("blk.0.attn_v.bias");
  if (made.family == "phi3") set_long_rope(made, metadata);
  add_token_ids(made, metadata);
  return made;
}

}  // namespace ridge
