#include "engine/ranks/cut_weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/weights/load_parts.h"
#include "engine/weights/load_tensors.h"

namespace ridge {
namespace {

struct Range {
  int64_t first = 0, end = 0;
  int64_t count() const { return end - first; }
};

// Part `part` of `count` things that come in units of `unit`; the first parts get one unit more
// where they do not divide.
Range part_of(int64_t count, int64_t unit, int part, int parts) {
  const int64_t units = (count + unit - 1) / unit, each = units / parts, more = units % parts;
  const auto before = [&](int64_t p) {
    return std::min(count, (p * each + std::min(p, more)) * unit);
  };
  return {before(part), before(part + 1)};
}

// The inner columns of the MLPs are cut at whole blocks of every layer's down matrix, and at
// multiples of 16 where there are enough of them: in the same places in all layers.
int64_t inner_unit(const Weights& whole, int parts) {
  int64_t block = 1, columns = 0;
  const auto look_at = [&](const Matrix& down) {
    if (!down) return;
    block = std::max<int64_t>(block, storage_info(down.storage).block);
    columns = columns == 0 ? down.columns : std::min(columns, down.columns);
  };
  for (const LayerWeights& layer : whole.layers) {
    look_at(layer.down);
    for (const Matrix& down : layer.expert_down) look_at(down);
  }
  return block > 1 ? block : columns >= 16 * parts ? 16 : 1;
}

class Cutter {
 public:
  Cutter(const Weights& whole, const RankGrid& grid, int rank,
         const std::function<void(const Matrix&)>& make)
      : whole_(whole),
        grid_(grid),
        make_(make),
        part_(grid.part_of(rank)),
        stage_(grid.stage_of(rank)),
        inner_unit_(inner_unit(whole, grid.tp)) {}

  Weights cut() {
    const Architecture& a = whole_.architecture;
    result_.architecture = a;
    result_.model = whole_.model;
    result_.source = whole_.source;
    result_.described_by = whole_.described_by;
    result_.owners = whole_.owners;
    result_.final_norm = whole_.final_norm;
    result_.embed = all_of(whole_.embed);

    Architecture& mine = result_.architecture;
    mine.heads = a.heads / grid_.tp;
    mine.kv_heads = std::max(1, a.kv_heads / grid_.tp);
    heads_ = {int64_t(part_) * mine.q_columns(), int64_t(part_ + 1) * mine.q_columns()};
    const int64_t kv_first = int64_t(part_) * a.kv_heads / grid_.tp * a.head_dim;
    kv_heads_ = {kv_first, kv_first + mine.kv_columns()};

    const Range layers = part_of(a.layer_count(), 1, stage_, grid_.pp);
    mine.layers.assign(a.layers.begin() + layers.first, a.layers.begin() + layers.end);
    for (int64_t l = layers.first; l < layers.end; ++l) cut_layer(whole_.layers[size_t(l)]);
    if (stage_ == grid_.pp - 1) {
      const VocabularyPart rows = vocabulary_part(a.vocab, part_, grid_.tp);
      result_.head = rows_of(whole_.head, {rows.first, rows.end});
      result_.head_first = rows.first;
    }
    sum_bytes();
    return std::move(result_);
  }

 private:
  void cut_layer(const LayerWeights& from) {
    LayerWeights to;
    to.attn_norm = from.attn_norm;
    to.post_attn_norm = from.post_attn_norm;
    to.mlp_norm = from.mlp_norm;
    to.post_mlp_norm = from.post_mlp_norm;
    to.q_norm = from.q_norm;
    to.k_norm = from.k_norm;
    to.q = rows_of(from.q, heads_);
    to.k = rows_of(from.k, kv_heads_);
    to.v = rows_of(from.v, kv_heads_);
    to.q_bias = rows_of(from.q_bias, heads_);
    to.k_bias = rows_of(from.k_bias, kv_heads_);
    to.v_bias = rows_of(from.v_bias, kv_heads_);
    to.out = columns_of(from.out, heads_);
    if (from.gate) {
      const Range inner = part_of(from.down.columns, inner_unit_, part_, grid_.tp);
      result_.architecture.ffn = static_cast<int>(inner.count());
      to.gate = rows_of(from.gate, inner);
      to.up = rows_of(from.up, inner);
      to.down = columns_of(from.down, inner);
    }
    to.router = all_of(from.router);
    if (!from.expert_gate.empty()) cut_experts(from, to);
    result_.layers.push_back(std::move(to));
  }

  void cut_experts(const LayerWeights& from, LayerWeights& to) {
    const size_t count = from.expert_gate.size();
    to.expert_gate.resize(count);
    to.expert_up.resize(count);
    to.expert_down.resize(count);
    if (grid_.whole_experts) {
      const Range mine = part_of(int64_t(count), 1, part_, grid_.tp);
      for (auto e = size_t(mine.first); e < size_t(mine.end); ++e) {
        to.expert_gate[e] = all_of(from.expert_gate[e]);
        to.expert_up[e] = all_of(from.expert_up[e]);
        to.expert_down[e] = all_of(from.expert_down[e]);
      }
      return;
    }
    for (size_t e = 0; e < count; ++e) {
      const Matrix& down = from.expert_down[e];
      const Range inner = part_of(down.columns, inner_unit_, part_, grid_.tp);
      result_.architecture.expert_ffn = static_cast<int>(inner.count());
      to.expert_gate[e] = rows_of(from.expert_gate[e], inner);
      to.expert_up[e] = rows_of(from.expert_up[e], inner);
      to.expert_down[e] = columns_of(down, inner);
    }
  }

  Matrix all_of(const Matrix& matrix) const {
    if (make_ && matrix) make_(matrix);
    return matrix;
  }

  Matrix rows_of(const Matrix& matrix, Range rows) const {
    Matrix part = matrix;
    part.rows = rows.count();
    part.data = matrix.row(rows.first);
    return all_of(part);
  }
  static Vector rows_of(const Vector& vector, Range rows) {
    if (vector.empty()) return {};
    return {vector.begin() + rows.first, vector.begin() + rows.end};
  }

  Matrix columns_of(const Matrix& matrix, Range columns) {
    Matrix part = matrix;
    part.columns = columns.count();
    part.data = matrix.data + storage_bytes(matrix.storage, columns.first);
    all_of(part);
    // Block formats are repacked from here by the runner.
    if (grid_.tp == 1 || storage_info(matrix.storage).block > 1) return part;
    const size_t stride = storage_bytes(matrix.storage, part.columns);
    const std::shared_ptr<std::byte> memory = make_memory(stride * size_t(part.rows));
    for (int64_t r = 0; r < part.rows; ++r) {
      std::memcpy(memory.get() + size_t(r) * stride, part.row(r), stride);
    }
    part.data = memory.get();
    part.row_stride = int64_t(stride);
    result_.copied_bytes += part.bytes();
    result_.owners.push_back(memory);
    return part;
  }

  void sum_bytes() {
    const auto add = [&](const Matrix& matrix) {
      if (matrix) result_.bytes += matrix.bytes();
    };
    for (const LayerWeights& layer : result_.layers) {
      for (const Matrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.out, &layer.gate, &layer.up,
                                   &layer.down, &layer.router}) {
        add(*matrix);
      }
      for (const auto* experts : {&layer.expert_gate, &layer.expert_up, &layer.expert_down}) {
        for (const Matrix& expert : *experts) add(expert);
      }
    }
    add(result_.head);
  }

  const Weights& whole_;
  const RankGrid& grid_;
  const std::function<void(const Matrix&)>& make_;
  int part_, stage_;
  int64_t inner_unit_;
  Weights result_;
  Range heads_, kv_heads_;  // rows of q, and of k and v
};

// `columns` of a matrix are cut into equal parts: each must hold whole blocks.
void check_blocks(const Matrix& matrix, int parts, const char* what) {
  const int64_t part = matrix.columns / parts, block = storage_info(matrix.storage).block;
  if (part % block == 0) return;
  throw Error("{} columns of {} in {} parts: {} each is no multiple of {}'s blocks of {}",
              matrix.columns, what, parts, part, storage_info(matrix.storage).name, block);
}

void check_inner(const Matrix& down, int64_t unit, int parts, const char* what) {
  if (down.columns / unit >= parts) return;
  throw Error("{} inner columns of {} in blocks of {} do not make {} parts", down.columns, what,
              unit, parts);
}

}  // namespace

VocabularyPart vocabulary_part(int vocab, int part, int parts) {
  const Range rows = part_of(vocab, 16, part, parts);
  return {static_cast<int>(rows.first), static_cast<int>(rows.end)};
}

void check_cut(const Weights& whole, const RankGrid& grid) {
  const Architecture& a = whole.architecture;
  const int tp = grid.tp;
  if (grid.pp > a.layer_count()) {
    throw Error("{} layers are too few for {} pipeline stages", a.layer_count(), grid.pp);
  }
  if (tp == 1) return;
  if (a.heads % tp != 0) throw Error("{} heads do not divide among {} ranks", a.heads, tp);
  if (a.kv_heads % tp != 0 && tp % a.kv_heads != 0) {
    throw Error("{} KV heads do not divide among {} ranks", a.kv_heads, tp);
  }
  if (a.vocab < 16 * tp) throw Error("{} tokens are too few for {} ranks", a.vocab, tp);
  if (grid.whole_experts && a.experts < tp) {
    throw Error("{} experts are too few for {} ranks", a.experts, tp);
  }
  const int64_t unit = inner_unit(whole, tp);
  for (const LayerWeights& layer : whole.layers) {
    check_blocks(layer.out, tp, "attention's output");
    if (layer.down) check_inner(layer.down, unit, tp, "the MLP");
    if (grid.whole_experts) continue;
    for (const Matrix& down : layer.expert_down) check_inner(down, unit, tp, "an expert");
  }
}

Weights cut_weights(const Weights& whole, const RankGrid& grid, int rank,
                    const std::function<void(const Matrix& view)>& make) {
  return Cutter(whole, grid, rank, make).cut();
}

}  // namespace ridge
