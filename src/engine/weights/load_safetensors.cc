// Loads the weights of a Hugging Face folder.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/weights/load_tensors.h"
#include "model/read.h"
#include "model/safetensors.h"

namespace ridge {

namespace {

// Prefixes of the language model's tensors: plain, inside Gemma 3's vision model (two spellings),
// or without the head.
constexpr std::string_view kPrefixes[] = {"model.", "language_model.model.",
                                          "model.language_model.", ""};

class Loader {
 public:
  Loader(const Architecture& architecture, Tensors& tensors, const std::string& where)
      : architecture_(architecture), tensors_(tensors), where_(where) {
    for (std::string_view prefix : kPrefixes) {
      if (tensors.has(std::string(prefix) + "embed_tokens.weight")) {
        prefix_ = prefix;
        return;
      }
    }
    throw Error("{}: tensor model.embed_tokens.weight is missing", where);
  }

  void load(const Slot& slot) {
    std::string name =
        tensor_name(FileKind::safetensors, architecture_, slot.role, slot.layer, slot.expert);
    if (slot.role == TensorRole::head) {
      if (!tensors_.has(name)) name = "language_model." + name;
    } else {
      name = prefix_ + name.substr(std::string_view("model.").size());
    }
    if (slot.vector) {
      *slot.vector = tensors_.vector(name, slot.rows, where_);
      if (architecture_.norm_plus_one && is_norm(slot.role)) {
        for (float& value : *slot.vector) value += 1;
      }
    } else if (is_expert(slot.role) && !tensors_.has(name)) {
      *slot.matrix = stacked_expert(slot, name);
    } else {
      *slot.matrix = tensors_.matrix(name, slot.rows, slot.columns, where_);
    }
  }

  std::string layers_prefix() const { return prefix_ + "layers."; }

 private:
  // Transformers 5 stores all experts of a layer in two tensors: down, and gate stacked above up.
  // `name` is the expert's separate tensor; the error names it when both forms are missing.
  Matrix stacked_expert(const Slot& slot, const std::string& name) {
    const std::string mlp = fmt::format("{}layers.{}.mlp.experts.", prefix_, slot.layer);
    const int64_t count = architecture_.experts;
    if (slot.role == TensorRole::expert_down) {
      if (!tensors_.has(mlp + "down_proj")) throw Error("{}: tensor {} is missing", where_, name);
      return tensors_.stacked(mlp + "down_proj", count, slot.expert, slot.rows, slot.columns,
                              where_);
    }
    if (!tensors_.has(mlp + "gate_up_proj")) throw Error("{}: tensor {} is missing", where_, name);
    Matrix both = tensors_.stacked(mlp + "gate_up_proj", count, slot.expert, 2 * slot.rows,
                                   slot.columns, where_);
    if (slot.role == TensorRole::expert_up) both.data += slot.rows * both.row_stride;
    both.rows = slot.rows;
    return both;
  }

  const Architecture& architecture_;
  Tensors& tensors_;
  const std::string& where_;
  std::string prefix_;
};

}  // namespace

Weights weights_from_safetensors(const nlohmann::json& config, const std::string& where,
                                 std::span<const NamedBytes> shards) {
  Weights weights;
  weights.architecture = architecture_from_config(config, where);
  weights.model = model_from_config(config, where);
  Tensors tensors;
  for (const NamedBytes& shard : shards) {
    for (SafeTensor& tensor : parse_safetensors(shard.bytes, shard.name)) {
      tensors.add(tensor.name,
                  {.format = tensor.dtype,
                   .shape = std::move(tensor.shape),
                   .data = reinterpret_cast<const std::byte*>(shard.bytes.data()) + tensor.offset,
                   .file = &shard.name});
    }
  }
  Loader loader(weights.architecture, tensors, where);
  for (const Slot& slot : make_slots(weights)) loader.load(slot);
  tensors.refuse_unused(loader.layers_prefix());
  finish_weights(weights);
  return weights;
}

}  // namespace ridge
