// Loads the weights of a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

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

void load(const Slot& slot, const Architecture& architecture, Tensors& tensors,
          const std::string& where) {
  std::string name = tensor_name(FileKind::gguf, architecture, slot.role, slot.layer, slot.expert);
  const bool bias = slot.role == TensorRole::q_bias || slot.role == TensorRole::k_bias ||
                    slot.role == TensorRole::v_bias;
  if (bias && !tensors.has(name)) return;  // a missing bias is zero: others of q, k, v have one
  if (slot.vector) {
    *slot.vector = tensors.vector(name, slot.rows, where);
    if (gguf_interleaves(architecture, slot.role)) {
      const Vector given = *slot.vector;
      for (int64_t row = 0; row < slot.rows; ++row) {
        (*slot.vector)[size_t(row)] = given[size_t(gguf_row(row, architecture.head_dim))];
      }
    }
    return;
  }
  if (!is_expert(slot.role)) {
    *slot.matrix = tensors.matrix(name, slot.rows, slot.columns, where);
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

// Permutes the rows of q and k into Hugging Face's order. Whole rows move, so nothing is
// requantized; the copy is about a tenth of a small model and a thirtieth of a large one.
void restore_rows(Weights& weights, std::span<const Slot> slots) {
  std::vector<Matrix*> moved;
  size_t bytes = 0;
  for (const Slot& slot : slots) {
    if (!slot.matrix || !gguf_interleaves(weights.architecture, slot.role)) continue;
    moved.push_back(slot.matrix);
    bytes += (size_t(slot.matrix->bytes()) + 63) / 64 * 64;
  }
  if (moved.empty()) return;
  const std::shared_ptr<std::byte> memory = make_memory(bytes);
  const int64_t head_dim = weights.architecture.head_dim;
  auto copy = [&](size_t first, size_t step) {
    std::byte* to = memory.get();
    for (size_t i = 0; i < moved.size(); ++i) {
      Matrix& matrix = *moved[i];
      const auto size = (size_t(matrix.bytes()) + 63) / 64 * 64;
      if (i % step == first) {
        for (int64_t row = 0; row < matrix.rows; ++row) {
          std::memcpy(to + row * matrix.row_stride, matrix.row(gguf_row(row, head_dim)),
                      size_t(matrix.row_stride));
        }
        matrix.data = to;
      }
      to += size;
    }
  };
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8);
  if (bytes < (size_t{4} << 20) || threads == 1) {
    copy(0, 1);
  } else {
    std::vector<std::jthread> workers;
    for (size_t t = 0; t < threads; ++t) workers.emplace_back(copy, t, threads);
  }
  weights.owners.push_back(memory);
  weights.copied_bytes += double(bytes);
}

}  // namespace

Weights weights_from_gguf(std::span<const NamedBytes> pieces) {
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
  weights.architecture = architecture_from_gguf(header, where);
  weights.model = model_from_gguf_header(header, where);
  if (tensors.has("rope_freqs.weight")) apply_rope_freqs(weights.architecture, tensors, where);
  const std::vector<Slot> slots = make_slots(weights);
  for (const Slot& slot : slots) load(slot, weights.architecture, tensors, where);
  tensors.refuse_unused("blk.");
  restore_rows(weights, slots);
  finish_weights(weights);
  return weights;
}

}  // namespace ridge
