// The forward pass on the CPU: one operator after the other, each over all threads. The layer loop
// is in runner.cc, the two blocks of a layer in attention_block.cc and mlp_block.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/cache.h"
#include "engine/cpu/experts.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/packed_layer.h"
#include "engine/cpu/step_buffers.h"
#include "engine/runner/profile.h"
#include "engine/runner/runner.h"
#include "engine/runner/sampled_steps.h"
#include "ranks/rank_grid.h"

namespace ridge::cpu {

class CpuRunner final : public Runner {
 public:
  CpuRunner(Weights weights, const RunnerOptions& options);

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  void set_profile(Profile* profile) override { profile_ = profile; }
  double repacked_bytes() const override { return repacked_; }
  std::string device() const override;
  Plan plan() const override;

  void run(std::span<const Slice> batch) override;
  std::span<const float> logits() override;
  void sample(std::span<const TopLogitsRequest> requests) override;
  std::span<const TopLogits> fetch() override { return sampled_.fetch(); }
  void copy_pages(std::span<const PageCopy> copies) override { cache_.copy(copies); }

  double read_rate() override;
  void fill_cache(uint64_t seed) override { cache_.fill(team_, seed); }

 private:
  const Architecture& shape() const { return weights_.architecture; }
  // Whether other ranks hold parts of the same layers.
  bool is_cut() const { return options_.ranks && options_.ranks->grid.tp > 1; }

  // A step (runner.cc).
  void pack();
  int lay_out(std::span<const Slice> batch);
  void run_slices(std::span<const Slice> batch, OperatorClock& clock);
  void head(std::span<const Slice> batch, OperatorClock& clock);
  void norm(const Vector& w, int tokens);
  // The GEMMs' input, normed on the way.
  void set_normed(const Vector& w, int tokens, std::span<const InputKind> kinds);
  void set_input(Input& input, const Rows& rows, int tokens, std::initializer_list<InputKind> of);
  // x += w y. Where the architecture has post-norms, w y is normed before the add. Where ranks
  // share the layer, w y is a partial sum; `reduce` names the operator that adds them up.
  void add_block(const PackedMatrix& w, const Input& y, const Vector& post_norm, int tokens,
                 const char* reduce, OperatorClock& clock, const Vector& bias = {});
  // The sum of all ranks' partial sums, of so many rows.
  void all_reduce(const Rows& rows, int tokens, const char* name, OperatorClock& clock);

  // The attention block of layer l (attention_block.cc).
  void attend(int l, int tokens, OperatorClock& clock);
  void project(int l, int tokens, OperatorClock& clock);
  void project_latents(int l, int tokens, OperatorClock& clock);
  // y[t] of a head = w[head] x[t] of that head, for heads `x_step` and `y_step` floats apart.
  void multiply_heads(const std::vector<PackedMatrix>& w, const Rows& x, int64_t x_step,
                      const Rows& y, int64_t y_step, int tokens);

  // The MLP block of layer l, dense or of experts (mlp_block.cc).
  void mlp(int l, int tokens, OperatorClock& clock);
  void gate_up(const GatedMlp& mlp, int tokens, int ffn, const char* down, OperatorClock& clock);
  void shared_expert(int l, int tokens, const Rows& sum, OperatorClock& clock);
  void experts(int l, int tokens, OperatorClock& clock);

  Weights weights_;
  RunnerOptions options_;
  std::shared_ptr<ThreadTeam> shared_team_;
  ThreadTeam& team_;
  Cache cache_;
  StepBuffers step_;  // activations of the step that runs
  Experts experts_;
  SampledSteps sampled_;
  std::vector<PackedLayer> layers_;
  PackedMatrix head_;
  double repacked_ = 0;
  // Of the last step.
  int logit_rows_ = 0;
  std::vector<AttentionSlice> slices_;
  std::vector<Token> token_ids_;
  std::vector<Gemm> head_gemms_;
  Profile* profile_ = nullptr;
};

inline const float* floats_of(const Vector& vector) {
  return vector.empty() ? nullptr : vector.data();
}

}  // namespace ridge::cpu
