// Loads the weights of a Hugging Face folder.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/weights/load_tensors.h"
#include "model/read.h"
#include "model/safetensors.h"

namespace ridge {

namespace {

// Prefixes of the language model's tensors: plain, inside a vision model (two spellings),
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
      name = prefixed(name);
    }
    if (architecture_.family == "gpt_oss" && slot.expert >= 0) {
      load_released_expert(slot);
    } else if (slot.vector) {
      *slot.vector = tensors_.vector(name, slot.rows, where_);
      if (architecture_.norm_plus_one && is_norm(slot.role)) {
        for (float& value : *slot.vector) value += 1;
      }
    } else if (is_expert(slot.role) && !tensors_.has(name)) {
      if (architecture_.family == "llama4_text") {
        load_transposed_expert(slot, name);
      } else {
        *slot.matrix = stacked_expert(slot, name);
      }
    } else {
      load_matrix(slot, name);
    }
  }

  const std::vector<ReleasedMxfp4>& released() const { return released_; }
  const std::vector<ReleasedFp8>& fp8() const { return fp8_; }
  const std::vector<TransposedMatrix>& transposed() const { return transposed_; }
  std::string layers_prefix() const { return prefix_ + "layers."; }

 private:
  // gpt-oss: all experts of a layer in one tensor, MXFP4 in blocks and scales; rows of gate and up
  // alternate.
  void load_released_expert(const Slot& slot) {
    const std::string experts = fmt::format("{}layers.{}.mlp.experts.", prefix_, slot.layer);
    const bool down =
        slot.role == TensorRole::expert_down || slot.role == TensorRole::expert_down_bias;
    const bool up = slot.role == TensorRole::expert_up || slot.role == TensorRole::expert_up_bias;
    const std::string name = experts + (down ? "down_proj" : "gate_up_proj");
    const int64_t count = architecture_.experts, rows = down ? slot.rows : 2 * slot.rows;
    if (slot.vector) {
      const Vector both = tensors_.stacked_vector(name + "_bias", count, slot.expert, rows, where_);
      for (int64_t r = 0; r < slot.rows; ++r) {
        slot.vector->push_back(both[size_t(down ? r : 2 * r + (up ? 1 : 0))]);
      }
      return;
    }
    if (tensors_.has(name)) {
      throw Error("{}: {} is not executed: experts are read as MXFP4, as released", where_, name);
    }
    if (slot.columns % 32 != 0) {
      throw Error("{}: rows of {} do not fill blocks of MXFP4", where_, slot.columns);
    }
    const int64_t groups = slot.columns / 32;
    *slot.matrix = {Storage::mxfp4, slot.rows, slot.columns, nullptr,
                    int64_t(storage_bytes(Storage::mxfp4, slot.columns))};
    released_.push_back({slot.matrix,
                         tensors_.bytes(name + "_blocks", {count, rows, groups, 16}, where_),
                         tensors_.bytes(name + "_scales", {count, rows, groups}, where_),
                         slot.expert * rows + (up ? 1 : 0), down ? 1 : 2});
  }

  // The tensor of that name, or the rows of the one that q, k and v, or gate and up, are fused in.
  void load_matrix(const Slot& slot, const std::string& name) {
    FusedRows rows = fused_rows(FileKind::safetensors, architecture_, slot.role, slot.layer);
    if (!rows.name.empty()) rows.name = prefixed(rows.name);
    if (rows.name.empty() || tensors_.has(name) || !tensors_.has(rows.name)) {
      rows = {name, 0, slot.rows};
    }
    if (!tensors_.is_fp8(rows.name)) {
      *slot.matrix =
          tensors_.fused(rows.name, rows.rows, rows.first, slot.rows, slot.columns, where_);
      return;
    }
    ReleasedFp8& from = fp8_.emplace_back(tensors_.fp8(rows.name, rows.rows, slot.columns, where_));
    *slot.matrix = {Storage::fp8, slot.rows, slot.columns, nullptr,
                    int64_t(storage_bytes(Storage::fp8, slot.columns))};
    from.matrix = slot.matrix;
    from.first_row = rows.first;
  }

  std::string prefixed(const std::string& name) const {
    return prefix_ + name.substr(std::string_view("model.").size());
  }

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

  // Llama 4: all experts of a layer in two tensors of columns, gate left of up.
  void load_transposed_expert(const Slot& slot, const std::string& name) {
    const bool down = slot.role == TensorRole::expert_down;
    const std::string experts =
        fmt::format("{}layers.{}.feed_forward.experts.", prefix_, slot.layer);
    const std::string own = experts + (down ? "down_proj" : "gate_up_proj");
    if (!tensors_.has(own)) throw Error("{}: tensor {} is missing", where_, name);
    const int64_t stride = down ? slot.rows : 2 * slot.rows;
    const Matrix columns =
        tensors_.stacked(own, architecture_.experts, slot.expert, slot.columns, stride, where_);
    *slot.matrix = {columns.storage, slot.rows, slot.columns, nullptr,
                    int64_t(storage_bytes(columns.storage, slot.columns))};
    transposed_.push_back(
        {slot.matrix, columns.data, stride, slot.role == TensorRole::expert_up ? slot.rows : 0});
  }

  const Architecture& architecture_;
  Tensors& tensors_;
  const std::string& where_;
  std::string prefix_;
  std::vector<ReleasedMxfp4> released_;
  std::vector<ReleasedFp8> fp8_;
  std::vector<TransposedMatrix> transposed_;
};

}  // namespace

Weights weights_from_safetensors(const nlohmann::json& config, const std::string& where,
                                 std::span<const NamedBytes> shards, LateCopies* late) {
  Weights weights;
  weights.model = read_config(config, where);
  weights.architecture = architecture_of(weights.model);
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
  const std::vector<Slot> slots = make_slots(weights);
  for (const Slot& slot : slots) loader.load(slot);
  const Architecture& made = weights.architecture;
  tensors.refuse_unused(loader.layers_prefix(),
                        made.family == "deepseek_v3" ? made.layer_count() : 1 << 30);
  copy_fp8(weights, loader.fp8(), where, late);  // before their rows are put in order
  restore_rows(weights, FileKind::safetensors, slots, late);
  reorder_mxfp4(weights, loader.released(), late);
  transpose_matrices(weights, loader.transposed(), late);
  finish_weights(weights);
  return weights;
}

}  // namespace ridge
