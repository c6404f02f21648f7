// Loads the weights of a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/weights/load_tensors.h"
#include "model/gguf.h"

namespace ridge {

namespace {

StoredTensor stored(const GgufTensor& tensor, const NamedBytes& file) {
  return {.format = tensor.format.name,
          .shape = {tensor.shape.rbegin(), tensor.shape.rend()},
          .data = reinterpret_cast<const std::byte*>(file.bytes.data()) + tensor.offset,
          .file = &file.name};
}

// Llama 3's RoPE scaling: the tensor holds a divisor per frequency.
void apply_rope_freqs(Architecture& architecture, Tensors& tensors, const std::string& where) {
  Rope& rope = architecture.ropes[0];
  const Vector divisors =
      tensors.vector("rope_freqs.weight", int64_t(rope.frequency.size()), where);
  for (size_t i = 0; i < divisors.size(); ++i) {
    rope.frequency[i] /= divisors[i];
    if (!(divisors[i] > 0) || !std::isfinite(rope.frequency[i])) {
      throw Error("{}: rope_freqs.weight must hold positive numbers", where);
    }
  }
}

// longrope's divisors: short ones, and long ones for contexts longer than the original.
void apply_rope_factors(Architecture& architecture, Tensors& tensors, const std::string& where) {
  Rope& rope = architecture.ropes[0];
  if (rope.original_context == 0) {
    throw Error("{}: {}.rope.scaling.original_context_length is missing", where,
                architecture.family);
  }
  const auto divided = [&](const char* name) {
    const Vector factors = tensors.vector(name, int64_t(rope.frequency.size()), where);
    std::vector<float> frequency = rope.frequency;
    for (size_t i = 0; i < factors.size(); ++i) {
      if (!(factors[i] >= 1e-3f)) throw Error("{}: {} must hold positive numbers", where, name);
      frequency[i] = float(double(frequency[i]) / double(factors[i]));
    }
    return frequency;
  };
  rope.long_frequency = divided("rope_factors_long.weight");
  rope.frequency = divided("rope_factors_short.weight");
}

bool is_longrope(const GgufHeader& header) {
  return std::any_of(header.values.begin(), header.values.end(), [](const auto& entry) {
    return entry.first.ends_with(".rope.scaling.type") && entry.second == "longrope";
  });
}

void load(const Slot& slot, const Architecture& architecture, Tensors& tensors,
          const std::string& where) {
  std::string name = tensor_name(FileKind::gguf, architecture, slot.role, slot.layer, slot.expert);
  const bool bias = slot.role == TensorRole::q_bias || slot.role == TensorRole::k_bias ||
                    slot.role == TensorRole::v_bias;
  if (bias && !tensors.has(name)) return;  // a missing bias is zero: others of q, k, v have one
  if (is_expert_bias(slot.role)) {
    *slot.vector =
        tensors.stacked_vector(name, architecture.experts, slot.expert, slot.rows, where);
    return;
  }
  if (slot.vector) {
    *slot.vector = tensors.vector(name, slot.rows, where);
    return;
  }
  if (slot.role == TensorRole::kv_b && !tensors.has(name)) return;  // see join_kv_b
  if (!is_expert(slot.role)) {
    // A gate that is missing is stored above `up`, in a tensor of the same name as `up` alone.
    const FusedRows fused = fused_rows(FileKind::gguf, architecture, slot.role, slot.layer);
    const std::string gate = fmt::format("blk.{}.ffn_gate.weight", slot.layer);
    const bool separate = slot.role == TensorRole::up ? tensors.has(gate) : tensors.has(name);
    *slot.matrix =
        !separate && !fused.name.empty() && tensors.has(fused.name)
            ? tensors.fused(fused.name, fused.rows, fused.first, slot.rows, slot.columns, where)
            : tensors.matrix(name, slot.rows, slot.columns, where);
    return;
  }
  // Files from early 2024 have one tensor per expert: "blk.0.ffn_up.7.weight".
  const std::string own =
      std::string(name).replace(name.find("_exps.weight"), std::string_view("_exps.weight").size(),
                                fmt::format(".{}.weight", slot.expert));
  *slot.matrix = tensors.has(own) ? tensors.matrix(own, slot.rows, slot.columns, where)
                                  : tensors.stacked(name, architecture.experts, slot.expert,
                                                    slot.rows, slot.columns, where);
}

// Newer files of DeepSeek hold kv_b in two stacks of a matrix per head: the keys' rows transposed,
// [kv_rank x nope], and the values', [value x kv_rank]. They become one matrix again: in bf16,
// which rounds quantized weights once more, or in f32 where either is stored in f32 or f16.
void join_kv_b(Weights& weights, Tensors& tensors, const std::string& where) {
  const Architecture& shape = weights.architecture;
  const LatentAttention& latent = shape.latent;
  struct Halves {
    std::vector<Matrix> keys, values;  // one per head
  };
  std::vector<Matrix*> matrices;
  std::vector<Halves> halves;
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    Matrix& kv_b = weights.layers[i].kv_b;
    if (kv_b) continue;
    Halves& both = halves.emplace_back();
    for (int h = 0; h < shape.heads; ++h) {
      both.keys.push_back(tensors.stacked(fmt::format("blk.{}.attn_k_b.weight", i), shape.heads, h,
                                          latent.kv_rank, latent.nope, where));
      both.values.push_back(tensors.stacked(fmt::format("blk.{}.attn_v_b.weight", i), shape.heads,
                                            h, latent.value, latent.kv_rank, where));
    }
    const auto is_fine = [](const Matrix& matrix) {
      return matrix.storage == Storage::f32 || matrix.storage == Storage::f16;
    };
    const bool fine = is_fine(both.keys[0]) || is_fine(both.values[0]);
    const Storage to = fine ? Storage::f32 : Storage::bf16;
    kv_b = {to, shape.heads * int64_t{latent.nope + latent.value}, latent.kv_rank, nullptr,
            int64_t(storage_bytes(to, latent.kv_rank))};
    matrices.push_back(&kv_b);
  }
  // Whole matrices, now: a head's keys lie in columns.
  const auto join = [&](size_t i, int64_t, int64_t, std::byte* to) {
    const Matrix& kv_b = *matrices[i];
    std::vector<float> column(size_t(latent.nope)), row(size_t(latent.kv_rank));
    std::vector<float> keys(size_t(latent.nope) * size_t(latent.kv_rank));
    const auto put = [&](const float* values) {
      quantize(kv_b.storage, values, latent.kv_rank, to);
      to += kv_b.row_stride;
    };
    for (size_t h = 0; h < halves[i].keys.size(); ++h) {
      const Matrix &k = halves[i].keys[h], &v = halves[i].values[h];
      for (int64_t c = 0; c < latent.kv_rank; ++c) {
        dequantize(k.storage, k.row(c), latent.nope, column.data());
        for (size_t r = 0; r < column.size(); ++r) keys[r * row.size() + size_t(c)] = column[r];
      }
      for (size_t r = 0; r < column.size(); ++r) put(&keys[r * row.size()]);
      for (int64_t r = 0; r < latent.value; ++r) {
        dequantize(v.storage, v.row(r), latent.kv_rank, row.data());
        put(row.data());
      }
    }
  };
  copy_matrices(weights, matrices, join, nullptr);
}

}  // namespace

Weights weights_from_gguf(std::span<const NamedBytes> pieces, LateCopies* late) {
  const std::string& where = pieces[0].name;
  GgufHeader header = parse_gguf(pieces[0].bytes, where);
  Tensors tensors;
  for (const auto& [name, tensor] : header.tensors) tensors.add(name, stored(tensor, pieces[0]));
  for (const NamedBytes& piece : pieces.subspan(1)) {
    GgufHeader other = parse_gguf(piece.bytes, piece.name);
    for (const auto& [name, tensor] : other.tensors) tensors.add(name, stored(tensor, piece));
    header.tensor_bytes += other.tensor_bytes;
    header.tensors.merge(other.tensors);
  }
  Weights weights;
  weights.model = model_from_gguf_header(header, where);
  weights.architecture = architecture_of(weights.model);
  if (tensors.has("rope_freqs.weight")) apply_rope_freqs(weights.architecture, tensors, where);
  if (tensors.has("rope_factors_short.weight") || tensors.has("rope_factors_long.weight")) {
    apply_rope_factors(weights.architecture, tensors, where);
  } else if (is_longrope(header)) {
    throw Error("{}: rope_factors_short.weight of its longrope is missing", where);
  }
  const std::vector<Slot> slots = make_slots(weights);
  for (const Slot& slot : slots) load(slot, weights.architecture, tensors, where);
  if (weights.architecture.latent) join_kv_b(weights, tensors, where);
  tensors.refuse_unused("blk.");
  restore_rows(weights, FileKind::gguf, slots, late);
  finish_weights(weights);
  return weights;
}

}  // namespace ridge
