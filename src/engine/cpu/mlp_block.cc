// The MLP block of a layer, dense or of experts.
#include <algorithm>
#include <array>

#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/elementwise.h"

namespace ridge::cpu {

void CpuRunner::mlp(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  clock.begin("mlp_norm");
  const std::array kinds{packed.mlp.gate.input_kind(tokens), packed.mlp.up.input_kind(tokens)};
  set_normed(w.mlp_norm, tokens, kinds);
  clock.begin("gate_up");
  gate_up(packed.mlp, tokens, shape().ffn, "down", clock);
  add_block(packed.mlp.down, step_.inner_input, w.post_mlp_norm, tokens, "mlp_all_reduce", clock);
}

// The input of `down` = activation(gate x) * (up x), of step_.input. Where it is bf16, the
// GEMM's epilogue rounds it: f32 is neither written nor read back.
void CpuRunner::gate_up(const GatedMlp& mlp, int tokens, int ffn, const char* down,
                        OperatorClock& clock) {
  const InputKind kind = mlp.down.input_kind(tokens);
  const bool rounds = kind == InputKind::bf16;
  if (rounds) step_.inner_input.open(tokens, ffn);
  const Gemm gemm{.w = &mlp.gate,
                  .x = &step_.input,
                  .y = step_.inner.data(),
                  .stride = step_.inner.stride(),
                  .to = rounds ? &step_.inner_input : nullptr,
                  .up = &mlp.up,
                  .activation = shape().activation};
  multiply(team_, {&gemm, 1});
  clock.begin(down);
  if (!rounds) {
    step_.inner_input.set(team_, step_.inner.data(), step_.inner.stride(), tokens, ffn,
                          std::array{kind});
  }
}

// The MLP that every token passes beside its experts.
void CpuRunner::shared_expert(int l, int tokens, const Rows& sum, OperatorClock& clock) {
  const GatedMlp& shared = layers_[size_t(l)].shared;
  clock.begin("shared_gate_up");
  set_input(step_.input, step_.normed, tokens,
            {shared.gate.input_kind(tokens), shared.up.input_kind(tokens)});
  gate_up(shared, tokens, shape().shared_ffn, "shared_down", clock);
  const Gemm down{.w = &shared.down,
                  .x = &step_.inner_input,
                  .y = sum.data(),
                  .stride = sum.stride(),
                  .accumulate = true};
  multiply(team_, {&down, 1});
}

// Where ranks share the experts, each adds up what it has of them.
void CpuRunner::experts(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  clock.begin("mlp_norm");
  norm(w.mlp_norm, tokens);
  experts_.route(packed, w, step_.normed, tokens, clock);
  const Rows& sum = is_cut() ? step_.expert_sum : step_.x;
  if (is_cut()) std::fill_n(sum.data(), int64_t{tokens} * sum.stride(), 0.0f);
  if (shape().shared_ffn > 0) shared_expert(l, tokens, sum, clock);
  experts_.run(packed, w, step_.normed, sum, clock);
  if (!is_cut()) return;
  all_reduce(sum, tokens, "mlp_all_reduce", clock);
  add_rows(team_, sum.data(), sum.stride(), tokens, shape().hidden, step_.x.data(),
           step_.x.stride());
}

}  // namespace ridge::cpu
