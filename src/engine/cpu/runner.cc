// The forward pass on the CPU: one operator after the other, each over all threads.
#include "engine/runner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "engine/account/profile.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/cache.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/read_rate.h"
#include "engine/ranks/rank_grid.h"
#include "engine/sampling/logits.h"
#include "engine/sampling/sampled_steps.h"

namespace ridge {
namespace {

using cpu::Gemm;
using cpu::Input;
using cpu::InputKind;
using cpu::PackedMatrix;

struct Expert {
  PackedMatrix gate, up, down;
};

struct PackedLayer {
  PackedMatrix q, k, v, out, gate, up, down, router;
  std::vector<Expert> experts;
};

// Rows of floats for the largest step, aligned to cache lines.
class Rows {
 public:
  Rows(int rows, int64_t columns)
      : columns_(columns), buffer_(size_t(std::max(rows, 1)) * size_t(columns) * sizeof(float)) {
    if (!buffer_) throw Error("no memory for activations of {} x {} floats", rows, columns);
  }
  float* data() const { return buffer_.as<float>(); }
  float* row(int64_t r) const { return data() + r * columns_; }
  int64_t stride() const { return columns_; }

 private:
  int64_t columns_;
  MappedBuffer buffer_;
};

int widest(const Architecture& a) {
  return std::max({a.hidden, a.q_columns(), a.ffn, a.expert_ffn});
}

class CpuRunner final : public Runner {
 public:
  CpuRunner(Weights weights, const RunnerOptions& options)
      : weights_(std::move(weights)),
        options_(options),
        shared_team_(options.team ? options.team : std::make_shared<ThreadTeam>(options.threads)),
        team_(*shared_team_),
        cache_(shape(), options, page_count()),
        x_(options.max_tokens, shape().hidden),
        normed_(options.max_tokens, shape().hidden),
        q_(options.max_tokens, shape().q_columns()),
        k_(options.max_tokens, shape().kv_columns()),
        v_(options.max_tokens, shape().kv_columns()),
        mixed_(options.max_tokens, shape().q_columns()),
        inner_(options.max_tokens, std::max(shape().ffn, shape().expert_ffn)),
        block_(options.max_tokens, shape().hidden),
        gathered_(shape().experts > 0 ? options.max_tokens : 1, shape().hidden),
        expert_sum_(shape().experts > 0 && is_cut() ? options.max_tokens : 1, shape().hidden),
        input_(options.max_tokens, widest(shape())),
        inner_input_(options.max_tokens, widest(shape())),
        logits_(options.logit_rows(), std::max<int64_t>(weights_.head.rows, 1)),
        sampled_(options.logit_rows()) {
    options_.threads = team_.size();
    options_.team = shared_team_;
    pack();
    slices_.reserve(size_t(options.max_sequences));
    chosen_.resize(size_t(options.max_tokens) * size_t(std::max(shape().top_k, 1)));
    chosen_weight_.resize(chosen_.size());
    router_logits_.resize(size_t(options.max_tokens) * size_t(std::max(shape().experts, 1)));
    expert_rows_.reserve(size_t(options.max_tokens));
    token_ids_.reserve(size_t(options.max_tokens));
  }

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  void set_profile(Profile* profile) override { profile_ = profile; }
  double repacked_bytes() const override { return repacked_; }
  std::string device() const override {
    return fmt::format("CPU, {} thread{}, {}", team_.size(), team_.size() == 1 ? "" : "s",
                       cpu::kernel_name(weights_.layers.front().q.storage));
  }
  Plan plan() const override {
    Plan plan;
    constexpr const char* kFormats[] = {"fp32", "fp16", "bf16", "int8"};  // indexed by KvStorage
    plan.kv = format_from_name(kFormats[static_cast<int>(options_.kv)]);
    plan.page_tokens = options_.page_tokens;
    // Block formats are multiplied as integers.
    if (layers_.front().out.input_kind() == InputKind::int8) plan.activations = DType::int8;
    return plan;
  }

  void run(std::span<const Slice> batch) override {
    OperatorClock clock(profile_);
    check_step(batch, options_, shape().vocab);
    logit_rows_ = 0;
    const RankLinks* links = options_.ranks.get();
    if (links == nullptr || links->grid.pp == 1) {
      run_slices(batch, clock);
    } else {
      // Micro-batches: while one stage runs one of them, the stage before it runs the next.
      const size_t parts = std::min(size_t(links->grid.pp), batch.size());
      for (size_t p = 0; p < parts; ++p) {
        const size_t first = p * batch.size() / parts, end = (p + 1) * batch.size() / parts;
        run_slices(batch.subspan(first, end - first), clock);
      }
    }
    sampled_.begin_step();
  }
  std::span<const float> logits() override {
    return {logits_.data(), size_t(logit_rows_) * size_t(weights_.head.rows)};
  }
  void sample(std::span<const TopLogitsRequest> requests) override;
  std::span<const TopLogits> fetch() override { return sampled_.fetch(); }
  void copy_pages(std::span<const PageCopy> copies) override { cache_.copy(copies); }

  double read_rate() override;
  void fill_cache(uint64_t seed) override { cache_.fill(team_, seed); }

 private:
  const Architecture& shape() const { return weights_.architecture; }

  // Whether other ranks hold parts of the same layers.
  bool is_cut() const { return options_.ranks && options_.ranks->grid.tp > 1; }

  void pack();
  int lay_out(std::span<const Slice> batch);
  void run_slices(std::span<const Slice> batch, OperatorClock& clock);
  void attend(int l, int tokens, OperatorClock& clock);
  void mlp(int l, int tokens, OperatorClock& clock);
  void experts(int l, int tokens, OperatorClock& clock);
  void head(std::span<const Slice> batch, OperatorClock& clock);
  // The sum of all ranks' partial sums, of so many rows.
  void all_reduce(const Rows& rows, int tokens, const char* name, OperatorClock& clock) {
    clock.begin(name);
    const size_t count = size_t(tokens) * size_t(rows.stride());
    options_.ranks->peers->all_reduce({rows.data(), count});
  }

  void norm(const Vector& w, int tokens) {
    cpu::rms_norm(team_, x_.data(), x_.stride(), tokens, shape().hidden, w.data(), shape().norm_eps,
                  normed_.data(), normed_.stride());
  }
  void set_input(Input& input, const Rows& rows, int tokens, std::initializer_list<InputKind> of) {
    input.set(team_, rows.data(), rows.stride(), tokens, rows.stride(), {of.begin(), of.size()});
  }
  // x += w y. Where the architecture has post-norms, w y is normed before the add. Where ranks
  // share the layer, w y is a partial sum; `reduce` names the operator that adds them up.
  void add_block(const PackedMatrix& w, const Input& y, const Vector& post_norm, int tokens,
                 const char* reduce, OperatorClock& clock) {
    if (post_norm.empty() && !is_cut()) {
      const Gemm gemm{.w = &w, .x = &y, .y = x_.data(), .stride = x_.stride(), .accumulate = true};
      cpu::multiply(team_, {&gemm, 1});
      return;
    }
    const Gemm gemm{.w = &w, .x = &y, .y = block_.data(), .stride = block_.stride()};
    cpu::multiply(team_, {&gemm, 1});
    if (is_cut()) all_reduce(block_, tokens, reduce, clock);
    if (post_norm.empty()) {
      cpu::add_rows(team_, block_.data(), block_.stride(), tokens, shape().hidden, x_.data(),
                    x_.stride());
    } else {
      cpu::rms_norm_add(team_, block_.data(), block_.stride(), tokens, shape().hidden,
                        post_norm.data(), shape().norm_eps, x_.data(), x_.stride());
    }
  }

  Weights weights_;
  RunnerOptions options_;
  std::shared_ptr<ThreadTeam> shared_team_;
  ThreadTeam& team_;
  cpu::Cache cache_;
  std::vector<PackedLayer> layers_;
  PackedMatrix head_;
  double repacked_ = 0;
  Rows x_, normed_, q_, k_, v_, mixed_, inner_, block_, gathered_, expert_sum_;
  Input input_, inner_input_;
  Rows logits_;
  int logit_rows_ = 0;  // of the last step
  SampledSteps sampled_;
  std::vector<cpu::AttentionSlice> slices_;
  std::vector<Token> token_ids_;
  std::vector<int32_t> chosen_;
  std::vector<float> chosen_weight_, router_logits_;
  std::vector<int> expert_rows_;
  Profile* profile_ = nullptr;
};

void CpuRunner::pack() {
  const auto pack_one = [&](const Matrix& matrix) {
    PackedMatrix packed = matrix ? PackedMatrix(matrix, team_) : PackedMatrix();
    repacked_ += packed.repacked_bytes();
    return packed;
  };
  layers_.resize(weights_.layers.size());
  for (size_t l = 0; l < layers_.size(); ++l) {
    const LayerWeights& from = weights_.layers[l];
    PackedLayer& to = layers_[l];
    to.q = pack_one(from.q);
    to.k = pack_one(from.k);
    to.v = pack_one(from.v);
    to.out = pack_one(from.out);
    to.gate = pack_one(from.gate);
    to.up = pack_one(from.up);
    to.down = pack_one(from.down);
    to.router = pack_one(from.router);
    for (size_t e = 0; e < from.expert_gate.size(); ++e) {
      to.experts.push_back({pack_one(from.expert_gate[e]), pack_one(from.expert_up[e]),
                            pack_one(from.expert_down[e])});
    }
  }
  head_ = pack_one(weights_.head);
}

double CpuRunner::read_rate() {
  std::vector<std::span<const std::byte>> parts;
  const auto add = [&](const PackedMatrix& matrix) {
    if (matrix) parts.push_back(matrix.memory());
  };
  for (const PackedLayer& layer : layers_) {
    for (const PackedMatrix* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.out, &layer.gate, &layer.up, &layer.down}) {
      add(*matrix);
    }
    for (const Expert& expert : layer.experts) add(expert.gate), add(expert.up), add(expert.down);
  }
  add(head_);
  return cpu::read_rate(team_, parts);
}

int CpuRunner::lay_out(std::span<const Slice> batch) {
  slices_.clear();
  token_ids_.clear();
  for (const Slice& slice : batch) {
    slices_.push_back({int(token_ids_.size()), int(slice.tokens.size()), slice.past, slice.pages});
    for (const Token token : slice.tokens) token_ids_.push_back(sampled_.token_id(token));
  }
  return static_cast<int>(token_ids_.size());
}

// The layers of this runner: between the embedding, or what the stage before sends, and the logits,
// or what the next stage takes.
void CpuRunner::run_slices(std::span<const Slice> batch, OperatorClock& clock) {
  const int tokens = lay_out(batch);
  const std::span<float> x{x_.data(), size_t(tokens) * size_t(x_.stride())};
  RankLinks* links = options_.ranks.get();
  if (links != nullptr && !links->is_first_stage()) {
    clock.begin("receive");
    links->world->receive(links->previous(), std::as_writable_bytes(x));
  } else {
    clock.begin("embed");
    cpu::embed(team_, weights_.embed, token_ids_.data(), tokens, shape().embed_scale, x_.data(),
               x_.stride());
  }
  for (int l = 0; l < shape().layer_count(); ++l) {
    attend(l, tokens, clock);
    if (shape().layers[size_t(l)].moe) {
      experts(l, tokens, clock);
    } else {
      mlp(l, tokens, clock);
    }
  }
  if (links != nullptr && !links->is_last_stage()) {
    clock.begin("send");
    links->world->send(links->next(), std::as_bytes(x));
  } else {
    head(batch, clock);
  }
}

void CpuRunner::sample(std::span<const TopLogitsRequest> requests) {
  const std::span<TopLogits> to = sampled_.sample(requests.size(), logit_rows_);
  const auto columns = size_t(logits_.stride());
  for (size_t row = 0; row < requests.size(); ++row) {
    find_top_logits(logits().subspan(row * columns, columns), requests[row], to[row],
                    weights_.head_first);
  }
}

void CpuRunner::attend(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  const LayerShape& layer = shape().layers[size_t(l)];
  const auto bias = [](const Vector& v) { return v.empty() ? nullptr : v.data(); };

  clock.begin("attn_norm");
  norm(w.attn_norm, tokens);
  clock.begin("qkv");
  set_input(input_, normed_, tokens,
            {packed.q.input_kind(), packed.k.input_kind(), packed.v.input_kind()});
  const Gemm gemms[] = {
      {.w = &packed.q, .x = &input_, .y = q_.data(), .stride = q_.stride(), .bias = bias(w.q_bias)},
      {.w = &packed.k, .x = &input_, .y = k_.data(), .stride = k_.stride(), .bias = bias(w.k_bias)},
      {.w = &packed.v, .x = &input_, .y = v_.data(), .stride = v_.stride(), .bias = bias(w.v_bias)},
  };
  cpu::multiply(team_, gemms);

  clock.begin("rope_cache");
  const cpu::RopeStore what{.q = q_.data(),
                            .k = k_.data(),
                            .v = v_.data(),
                            .q_stride = q_.stride(),
                            .kv_stride = k_.stride(),
                            .heads = shape().heads,
                            .q_norm = bias(w.q_norm),
                            .k_norm = bias(w.k_norm),
                            .norm_eps = shape().norm_eps,
                            .rope = &shape().ropes[size_t(layer.rope)]};
  cpu::rope_and_store(team_, what, cache_.layer(l), slices_);

  clock.begin("attention");
  const cpu::AttentionRules rules{shape().heads, shape().query_scale, shape().attention_softcap,
                                  layer.window};
  cpu::attention(team_, rules, cache_.layer(l), slices_, q_.data(), q_.stride(), mixed_.data(),
                 mixed_.stride());

  clock.begin("out");
  set_input(input_, mixed_, tokens, {packed.out.input_kind()});
  add_block(packed.out, input_, w.post_attn_norm, tokens, "attn_all_reduce", clock);
}

void CpuRunner::mlp(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  clock.begin("mlp_norm");
  norm(w.mlp_norm, tokens);
  clock.begin("gate_up");
  set_input(input_, normed_, tokens, {packed.gate.input_kind(), packed.up.input_kind()});
  const Gemm gemm{.w = &packed.gate,
                  .x = &input_,
                  .y = inner_.data(),
                  .stride = shape().ffn,
                  .up = &packed.up,
                  .activation = shape().activation};
  cpu::multiply(team_, {&gemm, 1});
  clock.begin("down");
  inner_input_.set(team_, inner_.data(), shape().ffn, tokens, shape().ffn,
                   std::array{packed.down.input_kind()});
  add_block(packed.down, inner_input_, w.post_mlp_norm, tokens, "mlp_all_reduce", clock);
}

// Runs one expert after the other over the tokens routed to it. A token's experts are added in the
// order of their index, independent of the rest of the batch. Where ranks share the experts, each
// adds up what it has of them.
void CpuRunner::experts(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  const int top_k = shape().top_k, count = shape().experts;
  clock.begin("mlp_norm");
  norm(w.mlp_norm, tokens);
  clock.begin("router");
  set_input(input_, normed_, tokens, {packed.router.input_kind()});
  const Gemm route{.w = &packed.router, .x = &input_, .y = router_logits_.data(), .stride = count};
  cpu::multiply(team_, {&route, 1});
  clock.begin("route");
  for (int t = 0; t < tokens; ++t) {
    cpu::choose_experts(&router_logits_[size_t(t) * size_t(count)], count, top_k,
                        shape().normalize_top_k, &chosen_[size_t(t) * size_t(top_k)],
                        &chosen_weight_[size_t(t) * size_t(top_k)]);
  }
  const Rows& sum = is_cut() ? expert_sum_ : x_;
  if (is_cut()) std::fill_n(sum.data(), int64_t{tokens} * sum.stride(), 0.0f);
  for (int e = 0; e < count; ++e) {
    if (!packed.experts[size_t(e)].gate) continue;  // another rank's
    expert_rows_.clear();
    for (int t = 0; t < tokens; ++t) {
      const int32_t* experts_of_t = &chosen_[size_t(t) * size_t(top_k)];
      if (std::find(experts_of_t, experts_of_t + top_k, e) != experts_of_t + top_k) {
        expert_rows_.push_back(t);
      }
    }
    if (expert_rows_.empty()) continue;
    const int rows = static_cast<int>(expert_rows_.size());
    const Expert& expert = packed.experts[size_t(e)];
    clock.begin("expert_gate_up");
    for (int r = 0; r < rows; ++r) {
      std::memcpy(gathered_.row(r), normed_.row(expert_rows_[size_t(r)]),
                  size_t(shape().hidden) * sizeof(float));
    }
    set_input(input_, gathered_, rows, {expert.gate.input_kind(), expert.up.input_kind()});
    const Gemm up{.w = &expert.gate,
                  .x = &input_,
                  .y = inner_.data(),
                  .stride = shape().expert_ffn,
                  .up = &expert.up,
                  .activation = shape().activation};
    cpu::multiply(team_, {&up, 1});
    clock.begin("expert_down");
    inner_input_.set(team_, inner_.data(), shape().expert_ffn, rows, shape().expert_ffn,
                     std::array{expert.down.input_kind()});
    const Gemm down{
        .w = &expert.down, .x = &inner_input_, .y = block_.data(), .stride = block_.stride()};
    cpu::multiply(team_, {&down, 1});
    for (int r = 0; r < rows; ++r) {
      const int t = expert_rows_[size_t(r)];
      const int32_t* experts_of_t = &chosen_[size_t(t) * size_t(top_k)];
      const auto place = std::find(experts_of_t, experts_of_t + top_k, e) - experts_of_t;
      const float weight = chosen_weight_[size_t(t) * size_t(top_k) + size_t(place)];
      for (int c = 0; c < shape().hidden; ++c) sum.row(t)[c] += weight * block_.row(r)[c];
    }
  }
  if (!is_cut()) return;
  all_reduce(sum, tokens, "mlp_all_reduce", clock);
  cpu::add_rows(team_, sum.data(), sum.stride(), tokens, shape().hidden, x_.data(), x_.stride());
}

// Computes the logits of the requested rows, behind those that the step has already.
void CpuRunner::head(std::span<const Slice> batch, OperatorClock& clock) {
  int rows = 0;
  for (const Slice& slice : batch) rows += slice.logits;
  if (rows == 0) return;
  clock.begin("final_norm");
  int row = 0;
  for (size_t s = 0; s < batch.size(); ++s) {
    const int from = slices_[s].first + slices_[s].fresh - batch[s].logits;
    cpu::rms_norm(team_, x_.row(from), x_.stride(), batch[s].logits, shape().hidden,
                  weights_.final_norm.data(), shape().norm_eps, normed_.row(row), normed_.stride());
    row += batch[s].logits;
  }
  clock.begin("lm_head");
  set_input(input_, normed_, rows, {head_.input_kind()});
  float* to = logits_.row(logit_rows_);
  const Gemm gemm{.w = &head_, .x = &input_, .y = to, .stride = logits_.stride()};
  cpu::multiply(team_, {&gemm, 1});
  if (shape().logit_softcap > 0) {
    cpu::soft_cap(team_, to, int64_t(rows) * logits_.stride(), shape().logit_softcap);
  }
  logit_rows_ += rows;
}

}  // namespace

std::unique_ptr<Runner> make_cpu_runner(Weights weights, const RunnerOptions& options) {
  if (options.kv == KvStorage::fp8) throw Error("the CPU's KV cache is f32, f16, bf16 or int8");
  return std::make_unique<CpuRunner>(std::move(weights), options);
}

}  // namespace ridge
