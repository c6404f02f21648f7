// The layer loop.
#include <algorithm>

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/read_rate.h"
#include "engine/sampling/logits.h"
#include "engine/weights/load_parts.h"
#include "step/micro_batches.h"

namespace ridge {
namespace cpu {
namespace {

// Micro-batches of a pipeline. Up to about 8 tokens a step takes as long as reading the weights,
// then in proportion to its tokens (a 1.1B in bf16 on two cores of a Zen 4: 62 ms for 8, 109 for
// 16, 211 for 32). With AMX reading the weights takes longest up to about 70 tokens: steps are cut
// too early there.
constexpr double kTurnTokens = 8;

}  // namespace

CpuRunner::CpuRunner(Weights weights, const RunnerOptions& options)
    : weights_(std::move(weights)),
      options_(options),
      shared_team_(options.team ? options.team : std::make_shared<ThreadTeam>(options.threads)),
      team_(*shared_team_),
      cache_(shape(), options, page_count()),
      step_(shape(), options, is_cut(), weights_.head.rows),
      experts_(shape(), options.max_tokens, team_),
      sampled_(options.logit_rows()) {
  options_.threads = team_.size();
  options_.team = shared_team_;
  pack();
  slices_.reserve(size_t(options.max_sequences));
  head_gemms_.reserve(size_t(shape().heads));
  token_ids_.reserve(size_t(options.max_tokens));
}

void CpuRunner::pack() {
  for (const LayerWeights& layer : weights_.layers) {
    layers_.push_back(pack_layer(layer, shape(), options_.invariant, team_, weights_.owners));
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

std::string CpuRunner::device() const {
  return fmt::format("CPU, {} thread{}, {}", team_.size(), team_.size() == 1 ? "" : "s",
                     kernel_name(weights_.layers.front().q.storage, options_.invariant));
}

Plan CpuRunner::plan() const {
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

void CpuRunner::run(std::span<const Slice> batch) {
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

std::span<const float> CpuRunner::logits() {
  return {step_.logits.data(), size_t(logit_rows_) * size_t(weights_.head.rows)};
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
  const std::span<float> x{step_.x.data(), size_t(tokens) * size_t(step_.x.stride())};
  RankLinks* links = options_.ranks.get();
  if (links != nullptr && !links->is_first_stage()) {
    clock.begin("receive");
    links->world->receive(links->previous(), std::as_writable_bytes(x));
  } else {
    clock.begin("embed");
    embed(team_, weights_.embed, token_ids_.data(), tokens, shape().embed_scale, step_.x.data(),
          step_.x.stride());
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
  const auto columns = size_t(step_.logits.stride());
  for (size_t row = 0; row < requests.size(); ++row) {
    find_top_logits(logits().subspan(row * columns, columns), requests[row], to[row],
                    weights_.head_first);
  }
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
    rms_norm(team_, step_.x.row(from), step_.x.stride(), batch[s].logits, shape().hidden,
             weights_.final_norm.data(), shape().norm_eps, step_.normed.row(row),
             step_.normed.stride());
    row += batch[s].logits;
  }
  clock.begin("lm_head");
  set_input(step_.input, step_.normed, rows, {head_.input_kind(rows)});
  float* to = step_.logits.row(logit_rows_);
  const Gemm gemm{.w = &head_, .x = &step_.input, .y = to, .stride = step_.logits.stride()};
  multiply(team_, {&gemm, 1});
  if (shape().logit_softcap > 0) {
    soft_cap(team_, to, int64_t(rows) * step_.logits.stride(), shape().logit_softcap);
  }
  logit_rows_ += rows;
}

void CpuRunner::norm(const Vector& w, int tokens) {
  rms_norm(team_, step_.x.data(), step_.x.stride(), tokens, shape().hidden, w.data(),
           shape().norm_eps, step_.normed.data(), step_.normed.stride());
}

void CpuRunner::set_normed(const Vector& w, int tokens, std::span<const InputKind> kinds) {
  step_.input.set(team_, step_.x.data(), step_.x.stride(), tokens, shape().hidden, kinds,
                  {w.data(), shape().norm_eps});
}

void CpuRunner::set_input(Input& input, const Rows& rows, int tokens,
                          std::initializer_list<InputKind> of) {
  input.set(team_, rows.data(), rows.stride(), tokens, rows.columns(), {of.begin(), of.size()});
}

void CpuRunner::add_block(const PackedMatrix& w, const Input& y, const Vector& post_norm,
                          int tokens, const char* reduce, OperatorClock& clock,
                          const Vector& bias) {
  if (post_norm.empty() && !is_cut()) {
    const Gemm gemm{.w = &w,
                    .x = &y,
                    .y = step_.x.data(),
                    .stride = step_.x.stride(),
                    .bias = floats_of(bias),
                    .accumulate = true};
    multiply(team_, {&gemm, 1});
    return;
  }
  const Gemm gemm{.w = &w,
                  .x = &y,
                  .y = step_.block.data(),
                  .stride = step_.block.stride(),
                  .bias = floats_of(bias)};
  multiply(team_, {&gemm, 1});
  if (is_cut()) all_reduce(step_.block, tokens, reduce, clock);
  if (post_norm.empty()) {
    add_rows(team_, step_.block.data(), step_.block.stride(), tokens, shape().hidden,
             step_.x.data(), step_.x.stride());
  } else {
    rms_norm_add(team_, step_.block.data(), step_.block.stride(), tokens, shape().hidden,
                 post_norm.data(), shape().norm_eps, step_.x.data(), step_.x.stride());
  }
}

void CpuRunner::all_reduce(const Rows& rows, int tokens, const char* name, OperatorClock& clock) {
  clock.begin(name);
  const size_t count = size_t(tokens) * size_t(rows.stride());
  options_.ranks->peers->all_reduce({rows.data(), count});
}

}  // namespace cpu

namespace {

// Block formats but fp8 are copied into another layout. Refused in one line where there is no
// memory for the copies, before the first is made.
void check_memory_of_copies(const Weights& weights) {
  double copies = 0;
  for (const ConstSlot& slot : slots_of(weights)) {
    if (!slot.matrix || slot.role == TensorRole::embed) continue;
    const Storage storage = slot.matrix->storage;
    if (storage_info(storage).block > 1 && storage != Storage::fp8) copies += slot.matrix->bytes();
  }
  if (copies <= 0.95 * free_bytes()) return;
  throw Error("{}: its matrices are repacked into {}, {} of memory are free", weights.source,
              pretty_bytes(copies), pretty_bytes(free_bytes()));
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
  check_memory_of_copies(weights);
  choose_long_ropes(weights.architecture, options.longest());
  return std::make_unique<cpu::CpuRunner>(std::move(weights), options);
}

}  // namespace ridge
