// The forward pass on the CPU: one operator after the other, each over all threads.
#include "engine/runner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "engine/account/profile.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/cache.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/experts.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/packed_layer.h"
#include "engine/cpu/read_rate.h"
#include "engine/cpu/rows.h"
#include "engine/ranks/rank_grid.h"
#include "engine/sampling/logits.h"
#include "engine/sampling/sampled_steps.h"
#include "step/micro_batches.h"

namespace ridge {
namespace {

using cpu::GatedMlp;
using cpu::Gemm;
using cpu::Input;
using cpu::InputKind;
using cpu::PackedLayer;
using cpu::PackedMatrix;
using cpu::Rows;

// Micro-batches of a pipeline. Up to about 8 tokens a step takes as long as reading the weights,
// then in proportion to its tokens (a 1.1B in bf16 on two cores of a Zen 4: 62 ms for 8, 109 for
// 16, 211 for 32). With AMX reading the weights takes longest up to about 70 tokens: steps are cut
// too early there.
constexpr double kTurnTokens = 8;

const float* floats_of(const Vector& vector) { return vector.empty() ? nullptr : vector.data(); }

// Whether GEMMs of these weights round their activations to bf16 or int8 on a CPU with AMX.
// Attention may round to bf16 then. Models in f32 and f16 are computed in f32 throughout.
bool rounds_to_bf16(Storage storage) { return storage != Storage::f32 && storage != Storage::f16; }

int widest(const Architecture& a) {
  return std::max({a.hidden, a.out_columns(), a.latent.q_rank, a.ffn, a.shared_ffn});
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
        mixed_(options.max_tokens, shape().out_columns()),
        q_latent_(options.max_tokens, shape().latent.q_rank),
        q_heads_(options.max_tokens, shape().latent ? shape().q_rows() : 0),
        mixed_latent_(options.max_tokens, shape().heads * shape().latent.kv_rank),
        inner_(options.max_tokens, std::max(shape().ffn, shape().shared_ffn)),
        block_(options.max_tokens, shape().hidden),
        expert_sum_(shape().experts > 0 && is_cut() ? options.max_tokens : 1, shape().hidden),
        input_(options.max_tokens, widest(shape())),
        inner_input_(options.max_tokens, widest(shape())),
        head_input_(shape().latent ? int64_t{options.max_tokens} * shape().heads : 1,
                    std::max(shape().latent.nope, shape().latent.kv_rank)),
        experts_(shape(), options.max_tokens, team_),
        logits_(options.logit_rows(), std::max<int64_t>(weights_.head.rows, 1),
                Rows::Layout::contiguous),
        sampled_(options.logit_rows()) {
    options_.threads = team_.size();
    options_.team = shared_team_;
    pack();
    slices_.reserve(size_t(options.max_sequences));
    head_gemms_.reserve(size_t(shape().heads));
    token_ids_.reserve(size_t(options.max_tokens));
  }

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  void set_profile(Profile* profile) override { profile_ = profile; }
  double repacked_bytes() const override { return repacked_; }
  std::string device() const override {
    return fmt::format("CPU, {} thread{}, {}", team_.size(), team_.size() == 1 ? "" : "s",
                       cpu::kernel_name(weights_.layers.front().q.storage, options_.invariant));
  }
  Plan plan() const override {
    Plan plan;
    constexpr const char* kFormats[] = {"fp32", "fp16", "bf16", "int8"};  // indexed by KvStorage
    plan.kv = format_from_name(kFormats[static_cast<int>(options_.kv)]);
    plan.page_tokens = options_.page_tokens;
    plan.turn_tokens = kTurnTokens;
    plan.cut_embedding = false;  // it is mapped, and only rows of tokens in use are read
    // Block formats are multiplied as integers, in large steps perhaps as bf16.
    if (layers_.front().out.input_kind(options_.max_tokens) == InputKind::int8) {
      plan.activations = DType::int8;
    }
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
      size_t first = 0;
      for (const int end : micro_batch_ends(token_counts(batch), links->grid.pp, kTurnTokens)) {
        run_slices(batch.subspan(first, size_t(end) - first), clock);
        first = size_t(end);
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
  void project(int l, int tokens, OperatorClock& clock);
  void project_latents(int l, int tokens, OperatorClock& clock);
  // y[t] of a head = w[head] x[t] of that head, for heads `x_step` and `y_step` floats apart.
  void multiply_heads(const std::vector<PackedMatrix>& w, const Rows& x, int64_t x_step,
                      const Rows& y, int64_t y_step, int tokens);
  void mlp(int l, int tokens, OperatorClock& clock);
  void gate_up(const GatedMlp& mlp, int tokens, int ffn, const char* down, OperatorClock& clock);
  void shared_expert(int l, int tokens, const Rows& sum, OperatorClock& clock);
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
  // The GEMMs' input, normed on the way.
  void set_normed(const Vector& w, int tokens, std::span<const InputKind> kinds) {
    input_.set(team_, x_.data(), x_.stride(), tokens, shape().hidden, kinds,
               {w.data(), shape().norm_eps});
  }
  void set_input(Input& input, const Rows& rows, int tokens, std::initializer_list<InputKind> of) {
    input.set(team_, rows.data(), rows.stride(), tokens, rows.columns(), {of.begin(), of.size()});
  }
  // x += w y. Where the architecture has post-norms, w y is normed before the add. Where ranks
  // share the layer, w y is a partial sum; `reduce` names the operator that adds them up.
  void add_block(const PackedMatrix& w, const Input& y, const Vector& post_norm, int tokens,
                 const char* reduce, OperatorClock& clock, const Vector& bias = {}) {
    if (post_norm.empty() && !is_cut()) {
      const Gemm gemm{.w = &w,
                      .x = &y,
                      .y = x_.data(),
                      .stride = x_.stride(),
                      .bias = floats_of(bias),
                      .accumulate = true};
      cpu::multiply(team_, {&gemm, 1});
      return;
    }
    const Gemm gemm{
        .w = &w, .x = &y, .y = block_.data(), .stride = block_.stride(), .bias = floats_of(bias)};
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
  Rows x_, normed_, q_, k_, v_, mixed_;
  Rows q_latent_, q_heads_, mixed_latent_;  // latent attention: before and after the latent space
  Rows inner_, block_, expert_sum_;
  Input input_, inner_input_, head_input_;
  std::vector<Gemm> head_gemms_;
  cpu::Experts experts_;
  Rows logits_;
  int logit_rows_ = 0;  // of the last step
  SampledSteps sampled_;
  std::vector<cpu::AttentionSlice> slices_;
  std::vector<Token> token_ids_;
  Profile* profile_ = nullptr;
};

void CpuRunner::pack() {
  for (const LayerWeights& layer : weights_.layers) {
    layers_.push_back(cpu::pack_layer(layer, shape(), options_.invariant, team_, weights_.owners));
    repacked_ += layers_.back().repacked_bytes;
  }
  if (weights_.head) head_ = PackedMatrix(weights_.head, team_, options_.invariant);
  repacked_ += head_.repacked_bytes();
}

double CpuRunner::read_rate() {
  std::vector<std::span<const std::byte>> parts;
  for (const PackedLayer& layer : layers_) {
    for (const std::span<const std::byte> part : layer.memory()) parts.push_back(part);
  }
  if (head_) parts.push_back(head_.memory());
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
  const LatentAttention& latent = shape().latent;
  clock.begin("attn_norm");
  if (latent) {
    norm(w.attn_norm, tokens);
    project_latents(l, tokens, clock);
  } else {
    project(l, tokens, clock);
  }
  clock.begin("rope_cache");
  const Rope& rope = shape().ropes[size_t(layer.rope)];
  const bool rotates = !rope.frequency.empty();
  const cpu::RopeStore what{.q = q_.data(),
                            .k = k_.data(),
                            .v = v_.data(),
                            .q_stride = q_.stride(),
                            .kv_stride = k_.stride(),
                            .heads = shape().heads,
                            .q_norm = floats_of(w.q_norm),
                            .k_norm = floats_of(latent ? w.kv_a_norm : w.k_norm),
                            .norm_eps = latent ? latent.norm_eps : shape().norm_eps,
                            .rope = &rope,
                            .unit = shape().unit_qk && rotates,
                            .temperature_scale = rotates ? 0 : shape().temperature_scale,
                            .temperature_floor = shape().temperature_floor};
  cpu::rope_and_store(team_, what, cache_.layer(l), slices_);
  if (latent) {
    // A head's q . k is the same sum whether its key is made from the latent, or its query is
    // multiplied by what would make it.
    clock.begin("mla_up_kv");
    multiply_heads(packed.absorb, q_heads_, latent.q_head(), q_, shape().head_dim, tokens);
  }

  clock.begin("attention");
  const cpu::AttentionRules rules{.heads = shape().heads,
                                  .scale = shape().query_scale,
                                  .softcap = shape().attention_softcap,
                                  .window = layer.window,
                                  .chunked = layer.chunked,
                                  .sinks = floats_of(w.sinks),
                                  .tiles = !options_.invariant && rounds_to_bf16(w.out.storage)};
  const Rows& mixed = latent ? mixed_latent_ : mixed_;
  cpu::attention(team_, rules, cache_.layer(l), slices_, q_.data(), q_.stride(), mixed.data(),
                 mixed.stride());
  if (latent) {
    clock.begin("mla_up_kv");
    multiply_heads(packed.expand, mixed_latent_, latent.kv_rank, mixed_, latent.value, tokens);
  }

  clock.begin("out");
  set_input(input_, mixed_, tokens, {packed.out.input_kind(tokens)});
  add_block(packed.out, input_, w.post_attn_norm, tokens, "attn_all_reduce", clock, w.out_bias);
}

void CpuRunner::project(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  const std::array kinds{packed.q.input_kind(tokens), packed.k.input_kind(tokens),
                         packed.v.input_kind(tokens)};
  set_normed(w.attn_norm, tokens, kinds);
  clock.begin("qkv");
  const Gemm gemms[] = {
      {.w = &packed.q,
       .x = &input_,
       .y = q_.data(),
       .stride = q_.stride(),
       .bias = floats_of(w.q_bias)},
      {.w = &packed.k,
       .x = &input_,
       .y = k_.data(),
       .stride = k_.stride(),
       .bias = floats_of(w.k_bias)},
      {.w = &packed.v,
       .x = &input_,
       .y = v_.data(),
       .stride = v_.stride(),
       .bias = floats_of(w.v_bias)},
  };
  cpu::multiply(team_, gemms);
}

// The rows that the cache holds, and the queries: what RoPE rotates of them lies behind the room
// for the part in the latent space.
void CpuRunner::project_latents(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  const LatentAttention& latent = shape().latent;
  clock.begin("mla_down");
  set_input(
      input_, normed_, tokens,
      {packed.kv_a.input_kind(tokens), (packed.q_a ? packed.q_a : packed.q).input_kind(tokens)});
  const Gemm down[] = {
      {.w = &packed.kv_a, .x = &input_, .y = k_.data(), .stride = k_.stride()},
      {.w = &packed.q_a, .x = &input_, .y = q_latent_.data(), .stride = q_latent_.stride()}};
  cpu::multiply(team_, std::span(down).first(packed.q_a ? 2 : 1));
  if (packed.q_a) {
    cpu::rms_norm(team_, q_latent_.data(), q_latent_.stride(), tokens, latent.q_rank,
                  w.q_a_norm.data(), latent.norm_eps, q_latent_.data(), q_latent_.stride());
    clock.begin("mla_up_q");
    set_input(input_, q_latent_, tokens, {packed.q.input_kind(tokens)});
  } else {
    clock.begin("qkv");
  }
  const Gemm up{.w = &packed.q, .x = &input_, .y = q_heads_.data(), .stride = q_heads_.stride()};
  cpu::multiply(team_, {&up, 1});
  for (int t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < shape().heads; ++h) {
      std::memcpy(q_.row(t) + h * shape().head_dim + latent.kv_rank,
                  q_heads_.row(t) + h * latent.q_head() + latent.nope,
                  size_t(latent.rope) * sizeof(float));
    }
  }
}

void CpuRunner::multiply_heads(const std::vector<PackedMatrix>& w, const Rows& x, int64_t x_step,
                               const Rows& y, int64_t y_step, int tokens) {
  head_input_.set_parts(team_, x.data(), x.stride(), tokens, w[0].columns(), x_step, int(w.size()),
                        std::array{w[0].input_kind(tokens)});
  head_gemms_.clear();
  for (size_t h = 0; h < w.size(); ++h) {
    head_gemms_.push_back({.w = &w[h],
                           .x = &head_input_,
                           .first = int(h) * tokens,
                           .y = y.data() + int64_t(h) * y_step,
                           .stride = y.stride()});
  }
  cpu::multiply(team_, head_gemms_);
}

void CpuRunner::mlp(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  clock.begin("mlp_norm");
  const std::array kinds{packed.mlp.gate.input_kind(tokens), packed.mlp.up.input_kind(tokens)};
  set_normed(w.mlp_norm, tokens, kinds);
  clock.begin("gate_up");
  gate_up(packed.mlp, tokens, shape().ffn, "down", clock);
  add_block(packed.mlp.down, inner_input_, w.post_mlp_norm, tokens, "mlp_all_reduce", clock);
}

// The input of `down` = activation(gate x) * (up x), of input_. Where it is bf16, the GEMM's
// epilogue rounds it: f32 is neither written nor read back.
void CpuRunner::gate_up(const GatedMlp& mlp, int tokens, int ffn, const char* down,
                        OperatorClock& clock) {
  const InputKind kind = mlp.down.input_kind(tokens);
  const bool rounds = kind == InputKind::bf16;
  if (rounds) inner_input_.open(tokens, ffn);
  const Gemm gemm{.w = &mlp.gate,
                  .x = &input_,
                  .y = inner_.data(),
                  .stride = inner_.stride(),
                  .to = rounds ? &inner_input_ : nullptr,
                  .up = &mlp.up,
                  .activation = shape().activation};
  cpu::multiply(team_, {&gemm, 1});
  clock.begin(down);
  if (!rounds) {
    inner_input_.set(team_, inner_.data(), inner_.stride(), tokens, ffn, std::array{kind});
  }
}

// The MLP that every token passes beside its experts.
void CpuRunner::shared_expert(int l, int tokens, const Rows& sum, OperatorClock& clock) {
  const GatedMlp& shared = layers_[size_t(l)].shared;
  clock.begin("shared_gate_up");
  set_input(input_, normed_, tokens,
            {shared.gate.input_kind(tokens), shared.up.input_kind(tokens)});
  gate_up(shared, tokens, shape().shared_ffn, "shared_down", clock);
  const Gemm down{.w = &shared.down,
                  .x = &inner_input_,
                  .y = sum.data(),
                  .stride = sum.stride(),
                  .accumulate = true};
  cpu::multiply(team_, {&down, 1});
}

// Where ranks share the experts, each adds up what it has of them.
void CpuRunner::experts(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  clock.begin("mlp_norm");
  norm(w.mlp_norm, tokens);
  experts_.route(packed, w, normed_, tokens, clock);
  const Rows& sum = is_cut() ? expert_sum_ : x_;
  if (is_cut()) std::fill_n(sum.data(), int64_t{tokens} * sum.stride(), 0.0f);
  if (shape().shared_ffn > 0) shared_expert(l, tokens, sum, clock);
  experts_.run(packed, w, normed_, sum, clock);
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
  set_input(input_, normed_, rows, {head_.input_kind(rows)});
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
  const int head_dim = weights.architecture.head_dim;
  if (head_dim % 8 != 0 || head_dim > cpu::kMaxHeadDim) {
    throw Error(
        "{}: heads of {} elements are not executed on the CPU, only multiples of 8 up to {}",
        weights.source, head_dim, cpu::kMaxHeadDim);
  }
  choose_long_ropes(weights.architecture, options.longest());
  return std::make_unique<CpuRunner>(std::move(weights), options);
}

}  // namespace ridge
