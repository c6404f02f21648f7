#include "engine/cpu/experts.h"

#include <algorithm>
#include <array>

#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/elementwise.h"

namespace ridge::cpu {
namespace {

const ExpertBias& bias_of(const LayerWeights& layer, int expert) {
  static const ExpertBias kNone;
  return layer.expert_bias.empty() ? kNone : layer.expert_bias[size_t(expert)];
}

// Rows of the buffers. One expert may be chosen by all tokens of a step, and one token chooses
// top_k experts.
int rows_of_wave(const Architecture& shape, int max_tokens) {
  return shape.experts > 0 ? std::max({max_tokens, shape.top_k, 1}) : 1;
}

// Elements below which threads are not worth waking: see Input::set_parts.
constexpr int64_t kSmall = 8 << 10;

}  // namespace

Experts::Experts(const Architecture& shape, int max_tokens, ThreadTeam& team)
    : shape_(shape),
      team_(team),
      wave_rows_(rows_of_wave(shape, max_tokens)),
      gathered_(wave_rows_, shape.experts > 0 ? shape.hidden : 1),
      inner_(wave_rows_, shape.expert_ffn),
      outputs_(wave_rows_, shape.experts > 0 ? shape.hidden : 1),
      input_(wave_rows_, shape.experts > 0 ? shape.hidden : 1),
      inner_input_(wave_rows_, shape.expert_ffn) {
  if (shape.experts == 0) return;
  const size_t rows = size_t(max_tokens) * size_t(shape.top_k);
  logits_.resize(size_t(max_tokens) * size_t(shape.experts));
  chosen_.resize(rows);
  weights_.resize(rows);
  rows_.resize(rows);
  starts_.resize(size_t(shape.experts) + 1);
  gemms_.reserve(size_t(shape.experts));
  kinds_.reserve(2 * size_t(shape.experts));
}

void Experts::route(const PackedLayer& packed, const LayerWeights& layer, const Rows& x, int tokens,
                    OperatorClock& clock) {
  clock.begin("router");
  tokens_ = tokens;
  input_.set(team_, x.data(), x.stride(), tokens, shape_.hidden,
             std::array{packed.router.input_kind(tokens)});
  const Gemm gemm{.w = &packed.router,
                  .x = &input_,
                  .y = logits_.data(),
                  .stride = shape_.experts,
                  .bias = floats_of(layer.router_bias)};
  multiply(team_, {&gemm, 1});
  clock.begin("route");
  for (size_t t = 0; t < size_t(tokens); ++t) {
    choose_experts(&logits_[t * size_t(shape_.experts)], shape_.experts, shape_.top_k,
                   shape_.normalize_top_k, &chosen_[t * size_t(shape_.top_k)],
                   &weights_[t * size_t(shape_.top_k)], shape_.routing,
                   floats_of(layer.router_correction));
  }
  sort_rows(packed);
}

// Counts the rows of each expert, then places them: a counting sort. Experts of other ranks get no
// rows.
void Experts::sort_rows(const PackedLayer& packed) {
  const auto is_here = [&](int32_t e) { return bool(packed.experts[size_t(e)].gate); };
  const size_t count = size_t(tokens_) * size_t(shape_.top_k);
  std::fill(starts_.begin(), starts_.end(), 0);
  for (size_t i = 0; i < count; ++i) {
    if (is_here(chosen_[i])) ++starts_[size_t(chosen_[i]) + 1];
  }
  for (size_t e = 1; e < starts_.size(); ++e) starts_[e] += starts_[e - 1];
  // Each start moves to the end of its rows, which is the start of the next expert.
  for (size_t i = 0; i < count; ++i) {
    if (!is_here(chosen_[i])) continue;
    const auto row = size_t(starts_[size_t(chosen_[i])]++);
    rows_[row] = {int32_t(i / size_t(shape_.top_k)), weights_[i]};
  }
  std::copy_backward(starts_.begin(), starts_.end() - 1, starts_.end());
  starts_[0] = 0;
}

void Experts::run(const PackedLayer& packed, const LayerWeights& layer, const Rows& x,
                  const Rows& y, OperatorClock& clock) {
  for (int expert = 0; expert < shape_.experts;) {
    const Wave wave = next_wave(expert);
    expert = wave.last_expert;
    if (wave.rows == 0) continue;
    clock.begin("expert_gate_up");
    gather(wave, x);
    gate_up(wave, packed, layer);
    clock.begin("expert_down");
    down(wave, packed, layer);
    add(wave, y);
  }
}

Experts::Wave Experts::next_wave(int expert) const {
  Wave wave{expert, expert, first_row(expert), 0};
  while (wave.last_expert < shape_.experts &&
         wave.rows + row_count(wave.last_expert) <= wave_rows_) {
    wave.rows += row_count(wave.last_expert++);
  }
  return wave;
}

template <typename F>
void Experts::for_each_expert(const Wave& wave, F&& f) const {
  for (int e = wave.first_expert; e < wave.last_expert; ++e) {
    if (row_count(e) > 0) f(e, first_row(e) - wave.first_row, row_count(e));
  }
}

void Experts::gather(const Wave& wave, const Rows& x) {
  const auto copy = [&](int first, int last) {
    for (int r = first; r < last; ++r) {
      const Row& row = rows_[size_t(wave.first_row + r)];
      const float factor = shape_.routing.scales_input ? row.weight : 1;
      const float* from = x.row(row.token);
      float* to = gathered_.row(r);
      for (int c = 0; c < shape_.hidden; ++c) to[c] = factor * from[c];
    }
  };
  if (int64_t{wave.rows} * shape_.hidden <= kSmall) return copy(0, wave.rows);
  team_.run([&](int index) {
    copy(int(int64_t{wave.rows} * index / team_.size()),
         int(int64_t{wave.rows} * (index + 1) / team_.size()));
  });
}

// inner = activation(gate x) * (up x).
void Experts::gate_up(const Wave& wave, const PackedLayer& packed, const LayerWeights& layer) {
  gemms_.clear();
  kinds_.clear();
  for_each_expert(wave, [&](int e, int first, int rows) {
    const GatedMlp& expert = packed.experts[size_t(e)];
    const ExpertBias& bias = bias_of(layer, e);
    kinds_.push_back(expert.gate.input_kind(rows));
    kinds_.push_back(expert.up.input_kind(rows));
    gemms_.push_back({.w = &expert.gate,
                      .x = &input_,
                      .first = first,
                      .tokens = rows,
                      .y = inner_.row(first),
                      .stride = inner_.stride(),
                      .bias = floats_of(bias.gate),
                      .up = &expert.up,
                      .up_bias = floats_of(bias.up),
                      .activation = shape_.activation});
  });
  input_.set(team_, gathered_.data(), gathered_.stride(), wave.rows, shape_.hidden, kinds_);
  multiply(team_, gemms_);
}

void Experts::down(const Wave& wave, const PackedLayer& packed, const LayerWeights& layer) {
  gemms_.clear();
  kinds_.clear();
  for_each_expert(wave, [&](int e, int first, int rows) {
    const PackedMatrix& w = packed.experts[size_t(e)].down;
    kinds_.push_back(w.input_kind(rows));
    gemms_.push_back({.w = &w,
                      .x = &inner_input_,
                      .first = first,
                      .tokens = rows,
                      .y = outputs_.row(first),
                      .stride = outputs_.stride(),
                      .bias = floats_of(bias_of(layer, e).down)});
  });
  inner_input_.set(team_, inner_.data(), inner_.stride(), wave.rows, inner_.columns(), kinds_);
  multiply(team_, gemms_);
}

// Each thread has a range of columns, so that the rows of a token are added in order.
void Experts::add(const Wave& wave, const Rows& y) {
  const auto add_columns = [&](int first, int last) {
    for (int r = 0; r < wave.rows; ++r) {
      const Row& row = rows_[size_t(wave.first_row + r)];
      const float weight = shape_.routing.scales_input ? 1 : row.weight;
      const float* from = outputs_.row(r);
      float* to = y.row(row.token);
      for (int c = first; c < last; ++c) to[c] += weight * from[c];
    }
  };
  if (int64_t{wave.rows} * shape_.hidden <= kSmall) return add_columns(0, shape_.hidden);
  team_.run([&](int index) {
    add_columns(int(int64_t{shape_.hidden} * index / team_.size()),
                int(int64_t{shape_.hidden} * (index + 1) / team_.size()));
  });
}

}  // namespace ridge::cpu
