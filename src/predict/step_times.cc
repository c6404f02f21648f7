#include "predict/step_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "step/lower.h"

namespace ridge {

struct StepKernels::State {
  std::shared_ptr<const Model> model;  // the rank points to it
  Rank rank;
  Ceilings ceilings;
  mutable std::vector<Op> ops;
};

StepKernels::StepKernels(const Request& r)
    : state_(std::make_unique<State>(State{
          r.model, make_rank(*r.model, r.plan), make_ceilings(r.system, r.plan, r.stack), {}})) {}

StepKernels::~StepKernels() = default;

namespace {

KernelSeconds operator-(const KernelSeconds& a, const KernelSeconds& b) {
  return {a.experts - b.experts, a.rest - b.rest};
}

double seconds_of(std::span<const Op> ops, const Ceilings& c, auto wanted) {
  double sum = 0;
  for (const Op& op : ops) {
    if (wanted(op)) sum += op.count * estimate(op, c).expected_s;
  }
  return sum;
}

bool is_experts(const Op& op) { return op.kind == OpKind::expert_matmul; }
bool is_prompt_attention(const Op& op) { return op.kind == OpKind::attention_prefill; }

}  // namespace

KernelSeconds StepKernels::step(std::span<const Sequences> batch) const {
  lower(state_->rank, batch, state_->ops);
  const double all = estimate_step(state_->ops, state_->ceilings, state_->rank.math).expected_s;
  const double experts = seconds_of(state_->ops, state_->ceilings, is_experts);
  return {experts, all - experts};
}

KernelSeconds StepKernels::decode(double sequences, double context) const {
  const double fresh = 1 + state_->rank.plan.speculate;
  const Sequences decode{sequences, fresh, std::max(0.0, context - fresh), fresh};
  return step({&decode, 1});
}

KernelSeconds StepKernels::added_by(const Sequences& chunk, double sequences,
                                    double context) const {
  const double fresh = 1 + state_->rank.plan.speculate;
  const Sequences both[] = {{sequences, fresh, std::max(0.0, context - fresh), fresh}, chunk};
  return step(both) - step({both, 1});
}

KernelSeconds StepKernels::layers_of(double tokens) const {
  const Sequences prompt{1, tokens, 0, 0};
  KernelSeconds all = step({&prompt, 1});
  all.rest -= seconds_of(state_->ops, state_->ceilings, is_prompt_attention);
  return all;
}

double StepKernels::prompt_attention(double tokens) const {
  const Sequences prompt{1, tokens, 0, 0};
  lower(state_->rank, {&prompt, 1}, state_->ops);
  return seconds_of(state_->ops, state_->ceilings, is_prompt_attention);
}

namespace {

// From `first` to beyond `last`, `per_octave` points an octave, whole numbers.
std::vector<double> points(double first, double last, double per_octave) {
  std::vector<double> out{first};
  for (double x = first; out.back() < last;) {
    x *= std::exp2(1 / per_octave);
    if (std::round(x) > out.back()) out.push_back(std::round(x));
  }
  return out;
}

// The interval of `x` in sorted `knots`: index of its upper end, at least 1.
size_t upper_knot(const std::vector<double>& knots, double x) {
  const auto it = std::upper_bound(knots.begin() + 1, knots.end() - 1, x);
  return static_cast<size_t>(it - knots.begin());
}

// Linear between the knots and beyond the last two.
double between(const std::vector<double>& knots, const double* values, size_t upper, double x) {
  const double low = knots[upper - 1], high = knots[upper];
  const double share = (x - low) / (high - low);
  return values[upper - 1] + share * (values[upper] - values[upper - 1]);
}

double at(const std::vector<double>& knots, const std::vector<double>& values, double x) {
  return between(knots, values.data(), upper_knot(knots, x), x);
}

}  // namespace

StepTimes::StepTimes(const Request& r, double max_sequences, double max_tokens, double max_context)
    : host_(host_costs(r.stack, *r.model)),
      layers_(r.model->layers()),
      batches_(points(1, std::max(2.0, max_sequences), 2)),
      contexts_(points(16, std::max(32.0, max_context), 0.5)),
      tokens_(points(1, std::max(2.0, max_sequences + max_tokens), 2)),
      lengths_(points(16, std::max(32.0, max_context), 1)) {
  const StepKernels kernels(r);
  const double stages = r.plan.pp;
  tokens_per_step_ = tokens_per_step(r.plan);
  layers_host_s_ = host_.layer * layers_ * std::log2(r.plan.tp);
  double draft_s = 0;
  if (const std::optional<Rank> draft = draft_rank(r)) {
    const Ceilings whole = make_ceilings(r.system, r.plan, r.stack, r.model.get());
    draft_s = draft_passes(r, *draft, whole, 1, contexts_.back() / 2).expected_s;
  }
  for (const double batch : batches_) {
    const double host = host_.step + layers_host_s_ + host_.sequence * batch + draft_s;
    for (const double context : contexts_) {
      const KernelSeconds s = kernels.decode(std::max(1.0, batch / stages), context);
      decode_s_.push_back((s.rest + host_.experts * s.experts + host) / tokens_per_step_);
    }
  }
  for (const double tokens : tokens_) {
    const KernelSeconds s = kernels.layers_of(tokens);
    layers_s_.push_back(host_.prompt * (s.rest + host_.prompt_experts * s.experts));
  }
  for (const double length : lengths_) {
    attention_s_.push_back(host_.prompt * kernels.prompt_attention(length));
  }
  attention_start_s_ = host_.prompt * kernels.prompt_attention(1);
  const PromptChunk whole{endpoint_chunk(r, std::max(1.0, r.prompt * (1 - r.plan.prefix_hit)))};
  const double alone = step(0, 0, {&whole, 1});
  first_s_ = host_.first + host_.first_layer * layers_ +
             std::max(0.0, host_.prompt_floor * layers_ - alone);
}

double StepTimes::decode(double sequences, double context) const {
  const size_t batch = upper_knot(batches_, sequences);
  const double each = context / sequences;
  const size_t width = contexts_.size(), upper = upper_knot(contexts_, each);
  const double ends[] = {between(contexts_, &decode_s_[(batch - 1) * width], upper, each),
                         between(contexts_, &decode_s_[batch * width], upper, each)};
  const double share = (sequences - batches_[batch - 1]) / (batches_[batch] - batches_[batch - 1]);
  return ends[0] + share * (ends[1] - ends[0]);
}

double StepTimes::prompt(double sequences, std::span<const PromptChunk> chunks) const {
  double tokens = 0, attention = 0;
  for (const PromptChunk& chunk : chunks) {
    tokens += chunk.fresh;
    const double before = chunk.past > 0 ? at(lengths_, attention_s_, chunk.past) : 0;
    const double after = at(lengths_, attention_s_, chunk.past + chunk.fresh);
    attention += std::max(after - before, 0.0) + (chunk.past > 0 ? attention_start_s_ : 0);
  }
  const double alone = sequences > 0 ? at(tokens_, layers_s_, sequences) : 0;
  return at(tokens_, layers_s_, sequences + tokens) - alone + attention;
}

double StepTimes::step(double decodes, double context, std::span<const PromptChunk> chunks) const {
  const double drawn = decodes > 0 ? decode(decodes, context) : 0;
  if (chunks.empty()) return drawn;
  const double host = decodes > 0 ? 0 : host_.step + layers_host_s_;
  return drawn + host + prompt(decodes, chunks);
}

double StepTimes::linear_until(double decodes, double context) const {
  const double each = context / decodes;
  const size_t upper = upper_knot(contexts_, each);
  return upper + 1 == contexts_.size() ? std::numeric_limits<double>::infinity()
                                       : contexts_[upper] * decodes;
}

int kv_pages(const Request& r, int page_tokens) {
  const Rank rank = make_rank(*r.model, r.plan);
  const double context = std::max(1.0, r.context);
  const MemoryFit memory = fit_memory(rank, draft_rank(r), r.system, r.stack.memory, r.plan.dp,
                                      context, endpoint_chunk(r, r.prompt));
  if (!memory.capacity) return 1 << 24;
  const double left = memory.left() + memory.kv;
  const double pages = left / (memory.kv / context * page_tokens);
  return static_cast<int>(std::clamp(pages, 0.0, double(1 << 24)));
}

}  // namespace ridge
