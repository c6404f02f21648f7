#include "engine/ranks/cut_weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/pack.h"
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
    look_at(layer.shared_down);
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
      const RankPart rows = vocabulary_part(a.vocab, part_, grid_.tp);
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
    if (whole_.architecture.latent) {
      cut_latents(from, to);
    } else {
      to.q = rows_of(from.q, heads_);
      to.k = rows_of(from.k, kv_heads_);
      to.v = rows_of(from.v, kv_heads_);
      to.out = columns_of(from.out, heads_);
    }
    to.q_bias = rows_of(from.q_bias, heads_);
    to.k_bias = rows_of(from.k_bias, kv_heads_);
    to.v_bias = rows_of(from.v_bias, kv_heads_);
    to.out_bias = of_first_part(from.out_bias);
    to.sinks = rows_of(from.sinks, {heads_.first / whole_.architecture.head_dim,
                                    heads_.end / whole_.architecture.head_dim});
    to.router_bias = from.router_bias;
    if (from.gate) {
      const Range inner = part_of(from.down.columns, inner_unit_, part_, grid_.tp);
      result_.architecture.ffn = static_cast<int>(inner.count());
      to.gate = rows_of(from.gate, inner);
      to.up = rows_of(from.up, inner);
      to.down = columns_of(from.down, inner);
    }
    if (from.shared_gate) {
      const Range inner = part_of(from.shared_down.columns, inner_unit_, part_, grid_.tp);
      result_.architecture.shared_ffn = static_cast<int>(inner.count());
      to.shared_gate = rows_of(from.shared_gate, inner);
      to.shared_up = rows_of(from.shared_up, inner);
      to.shared_down = columns_of(from.shared_down, inner);
    }
    to.router = all_of(from.router);
    to.router_correction = from.router_correction;
    if (!from.expert_gate.empty()) cut_experts(from, to);
    result_.layers.push_back(std::move(to));
  }

  // The latents of queries and keys are made on every rank, and so is the cache. What makes heads
  // of them is cut by head.
  void cut_latents(const LayerWeights& from, LayerWeights& to) {
    const LatentAttention& latent = whole_.architecture.latent;
    const auto rows_of_heads = [&](int64_t each) {
      const int64_t mine = result_.architecture.heads * each;
      return Range{part_ * mine, (part_ + 1) * mine};
    };
    to.q_a = all_of(from.q_a);
    to.kv_a = all_of(from.kv_a);
    to.q = rows_of(from.q, rows_of_heads(latent.q_head()));
    to.kv_b = rows_of(from.kv_b, rows_of_heads(latent.nope + latent.value));
    to.out = columns_of(from.out, rows_of_heads(latent.value));
    to.q_a_norm = from.q_a_norm;
    to.kv_a_norm = from.kv_a_norm;
  }

  void cut_experts(const LayerWeights& from, LayerWeights& to) {
    const size_t count = from.expert_gate.size();
    to.expert_gate.resize(count);
    to.expert_up.resize(count);
    to.expert_down.resize(count);
    to.expert_bias.resize(from.expert_bias.size());
    if (grid_.whole_experts) {
      const RankPart mine = expert_part(int(count), part_, grid_.tp);
      for (auto e = size_t(mine.first); e < size_t(mine.end); ++e) {
        to.expert_gate[e] = all_of(from.expert_gate[e]);
        to.expert_up[e] = all_of(from.expert_up[e]);
        to.expert_down[e] = all_of(from.expert_down[e]);
        if (!from.expert_bias.empty()) to.expert_bias[e] = from.expert_bias[e];
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
      if (from.expert_bias.empty()) continue;
      const ExpertBias& bias = from.expert_bias[e];
      to.expert_bias[e] = {rows_of(bias.gate, inner), rows_of(bias.up, inner),
                           of_first_part(bias.down)};
    }
  }

  // The bias of a partial sum: one rank adds it, the others zeros.
  Vector of_first_part(const Vector& bias) const { return part_ == 0 ? bias : Vector(bias.size()); }

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
    if (grid_.tp == 1 || cpu::layout_of(matrix.storage) != cpu::Layout::plain) return part;
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
      for (const Matrix* matrix :
           {&layer.q, &layer.k, &layer.v, &layer.q_a, &layer.kv_a, &layer.kv_b, &layer.out,
            &layer.gate, &layer.up, &layer.down, &layer.router, &layer.shared_gate,
            &layer.shared_up, &layer.shared_down}) {
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

RankPart vocabulary_part(int vocab, int part, int parts) {
  const Range rows = part_of(vocab, 16, part, parts);
  return {static_cast<int>(rows.first), static_cast<int>(rows.end)};
}

RankPart expert_part(int experts, int part, int parts) {
  const Range mine = part_of(experts, 1, part, parts);
  return {static_cast<int>(mine.first), static_cast<int>(mine.end)};
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
    if (layer.shared_down) check_inner(layer.shared_down, unit, tp, "the shared expert");
    if (grid.whole_experts) continue;
    for (const Matrix& down : layer.expert_down) check_inner(down, unit, tp, "an expert");
  }
}

Weights cut_weights(const Weights& whole, const RankGrid& grid, int rank,
                    const std::function<void(const Matrix& view)>& make) {
  return Cutter(whole, grid, rank, make).cut();
}

double cpu_copied_bytes(const Weights& whole, const RankGrid& grid) {
  double bytes = 0;
  const auto add = [&](const Matrix& matrix, double copies = 1) {
    if (!matrix) return;
    bytes += copies * double(cpu::group_count(matrix.rows)) *
             double(cpu::packed_group_bytes(matrix.storage, matrix.columns));
  };
  const auto add_columns = [&](const Matrix& matrix) {
    add(matrix);
    const bool plain = cpu::layout_of(matrix.storage) == cpu::Layout::plain;
    const bool copied = matrix && grid.tp > 1 && plain;
    if (copied) bytes += matrix.bytes();
  };
  // Latent attention (cpu/packed_layer.h): the keys' rows of every head are transposed, those of
  // block formats in bf16, and repacked where this CPU repacks that; the values' rows are repacked.
  const auto add_heads = [&](const Matrix& kv_b) {
    const Architecture& a = whole.architecture;
    const bool blocks = storage_info(kv_b.storage).block > 1;
    Matrix keys = kv_b, values = kv_b;
    keys.storage = blocks ? Storage::bf16 : kv_b.storage;
    keys.rows = kv_b.columns, keys.columns = a.latent.nope;
    bytes +=
        double(a.heads) * double(a.latent.nope) * double(storage_bytes(keys.storage, kv_b.columns));
    add(keys, a.heads);
    values.rows = a.latent.value;
    add(values, a.heads);
  };
  const double kv_copies = std::max(1, grid.tp / whole.architecture.kv_heads);
  for (const LayerWeights& layer : whole.layers) {
    for (const Matrix* matrix :
         {&layer.q, &layer.gate, &layer.up, &layer.shared_gate, &layer.shared_up}) {
      add(*matrix);
    }
    for (const Matrix* matrix : {&layer.q_a, &layer.kv_a}) add(*matrix, grid.tp);
    for (const Matrix* matrix : {&layer.k, &layer.v}) add(*matrix, kv_copies);
    for (const Matrix* matrix : {&layer.out, &layer.down, &layer.shared_down}) add_columns(*matrix);
    if (layer.kv_b) add_heads(layer.kv_b);
    add(layer.router, grid.tp);
    for (const Matrix& gate : layer.expert_gate) add(gate);
    for (const Matrix& up : layer.expert_up) add(up);
    for (const Matrix& down : layer.expert_down) grid.whole_experts ? add(down) : add_columns(down);
  }
  add(whole.head);
  return bytes;
}

}  // namespace ridge
