#include "engine/cpu/packed_layer.h"

#include <cstring>

#include "engine/weights/load_tensors.h"

namespace ridge::cpu {
namespace {

// The transpose of rows [first, first + rows) of a matrix, in its own storage or, of block formats,
// in bf16: their blocks lie along the rows.
Matrix transposed_rows(const Matrix& from, int64_t first, int64_t rows, std::byte* to) {
  const bool blocks = storage_info(from.storage).block > 1;
  const Storage storage = blocks ? Storage::bf16 : from.storage;
  const auto element = int64_t(storage_bytes(storage, 1));
  Matrix made{storage, from.columns, rows, to, rows * element};
  std::vector<float> values(size_t(from.columns));
  std::vector<std::byte> row(size_t(from.columns * element));
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* source = from.row(first + r);
    if (blocks) {
      dequantize(from.storage, source, from.columns, values.data());
      quantize(storage, values.data(), from.columns, row.data());
      source = row.data();
    }
    for (int64_t c = 0; c < from.columns; ++c) {
      std::memcpy(to + c * made.row_stride + r * element, source + c * element, size_t(element));
    }
  }
  return made;
}

void cut_into_heads(const Matrix& kv_b, const Architecture& shape, bool invariant, ThreadTeam& team,
                    std::vector<std::shared_ptr<const void>>& owners, PackedLayer& to) {
  const LatentAttention& latent = shape.latent;
  const int64_t rows = latent.nope + latent.value, kept = int64_t{latent.nope} * latent.kv_rank;
  const bool blocks = storage_info(kv_b.storage).block > 1;
  const auto size = size_t(storage_bytes(blocks ? Storage::bf16 : kv_b.storage, kept));
  const size_t bytes = (size + 63) / 64 * 64;
  const std::shared_ptr<std::byte> memory = make_memory(bytes * size_t(shape.heads));
  owners.push_back(memory);
  std::vector<Matrix> keys(static_cast<size_t>(shape.heads));
  team.run([&](int index) {
    for (int h = index; h < shape.heads; h += team.size()) {
      keys[size_t(h)] =
          transposed_rows(kv_b, h * rows, latent.nope, memory.get() + bytes * size_t(h));
    }
  });
  for (int64_t h = 0; h < shape.heads; ++h) {
    Matrix values = kv_b;
    values.data = kv_b.row(h * rows + latent.nope);
    values.rows = latent.value;
    to.absorb.emplace_back(keys[size_t(h)], team, invariant);
    to.expand.emplace_back(values, team, invariant);
    to.repacked_bytes += keys[size_t(h)].bytes() + to.absorb.back().repacked_bytes() +
                         to.expand.back().repacked_bytes();
  }
}

}  // namespace

std::vector<std::span<const std::byte>> PackedLayer::memory() const {
  std::vector<std::span<const std::byte>> parts;
  const auto add = [&](const PackedMatrix& matrix) {
    if (matrix) parts.push_back(matrix.memory());
  };
  const auto add_mlp = [&](const GatedMlp& each) { add(each.gate), add(each.up), add(each.down); };
  for (const PackedMatrix* matrix : {&q, &k, &v, &q_a, &kv_a, &out}) add(*matrix);
  for (const auto* heads : {&absorb, &expand}) {
    for (const PackedMatrix& head : *heads) add(head);
  }
  add_mlp(mlp);
  add_mlp(shared);
  for (const GatedMlp& expert : experts) add_mlp(expert);
  return parts;
}

PackedLayer pack_layer(const LayerWeights& layer, const Architecture& shape, bool invariant,
                       ThreadTeam& team, std::vector<std::shared_ptr<const void>>& owners) {
  PackedLayer to;
  const auto pack = [&](const Matrix& matrix) {
    PackedMatrix packed = matrix ? PackedMatrix(matrix, team, invariant) : PackedMatrix();
    to.repacked_bytes += packed.repacked_bytes();
    return packed;
  };
  to.q = pack(layer.q);
  to.k = pack(layer.k);
  to.v = pack(layer.v);
  to.out = pack(layer.out);
  to.router = pack(layer.router);
  to.mlp = {pack(layer.gate), pack(layer.up), pack(layer.down)};
  to.shared = {pack(layer.shared_gate), pack(layer.shared_up), pack(layer.shared_down)};
  for (size_t e = 0; e < layer.expert_gate.size(); ++e) {
    to.experts.push_back(
        {pack(layer.expert_gate[e]), pack(layer.expert_up[e]), pack(layer.expert_down[e])});
  }
  to.q_a = pack(layer.q_a);
  to.kv_a = pack(layer.kv_a);
  if (layer.kv_b) cut_into_heads(layer.kv_b, shape, invariant, team, owners, to);
  return to;
}

}  // namespace ridge::cpu
