#include "serving/step_sampler.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {
namespace {

// Rows of the slice that tokens are drawn from, its last ones.
int drawn_rows(const ScheduledSlice& slice) { return slice.samples ? 1 + slice.drafts : 0; }

}  // namespace

void StepSampler::request_rows(StepInFlight& step, ActiveRequests& requests, bool drafts) {
  step.rows = 0;
  step.may_run_ahead = runner_->queues_steps() && !drafts;
  for (const ScheduledSlice& slice : step.planned.slices) step.rows += slice.logits;
  if (step.requests.size() < size_t(step.rows)) step.requests.resize(size_t(step.rows));
  step.whole_row.assign(size_t(step.rows), false);
  size_t row = 0;
  for (const ScheduledSlice& slice : step.planned.slices) {
    const ActiveRequest& request = requests.at(slice.id);
    const int prompt_rows = slice.logits - drawn_rows(slice);
    for (int i = 0; i < slice.logits; ++i, ++row) {
      TopLogitsRequest& wanted = step.requests[row];
      if (i >= prompt_rows) {
        step.whole_row[row] = !request_draw(request, step.planned, slice, i - prompt_rows, wanted);
      } else {
        const int position = slice.past + slice.count - slice.logits + i;
        wanted = {.count = std::max(request.prompt_logprobs, 1),
                  .tokens = {request.prompt[size_t(position) + 1]}};
      }
    }
    if (slice.samples && (!request.generation.sampler().device_draws() ||
                          request.generation.has_mask() || prompt_rows > 0)) {
      step.may_run_ahead = false;
    }
  }
  if (step.rows > 0) {
    runner_->sample(std::span(step.requests).first(size_t(step.rows)));
  } else {
    step.may_run_ahead = false;  // its end is waited for by logits(), which is of the last step
  }
}

// The draw behind the first `drafts` drafts of a slice. False: the whole row decides.
bool StepSampler::request_draw(const ActiveRequest& request, const ScheduledStep& step,
                               const ScheduledSlice& slice, int drafts, TopLogitsRequest& wanted) {
  const Sampler& sampler = request.generation.sampler();
  SampleContext context = request.generation.context();
  context.allowed = {};
  const size_t position = size_t(slice.past + slice.count - slice.drafts + drafts);
  if (sampler.device_draws()) {
    context.unknown = position - context.tokens.size();
  } else if (drafts > 0) {
    const std::span<const Token> drafted = step.tokens_of(slice).last(size_t(slice.drafts));
    context_tokens_.assign(context.tokens.begin(), context.tokens.end());
    context_tokens_.insert(context_tokens_.end(), drafted.begin(), drafted.begin() + drafts);
    context.tokens = context_tokens_;
  }
  if (sampler.request(context, workspace_, wanted)) return true;
  wanted = {};
  return false;
}

void StepSampler::fetch(const StepInFlight& step, bool newest) {
  rows_ = {};
  logits_ = {};
  newest_ = newest;
  if (step.rows > 0) {
    rows_ = runner_->fetch();
  } else {
    runner_->logits();  // waits for the step
  }
}

void StepSampler::draw(const ActiveRequest& request, const StepInFlight& step, size_t row,
                       Sampled& to) {
  const Sampler& sampler = request.generation.sampler();
  const SampleContext context = request.generation.context();
  if (!step.whole_row[row] &&
      sampler.sample(rows_[row], step.requests[row], context, workspace_, to)) {
    return;
  }
  if (!newest_) throw Error("every token is banned: nothing is left to draw from");
  if (logits_.empty()) logits_ = runner_->logits();
  const auto vocab = size_t(runner_->weights().architecture.vocab);
  sampler.sample(logits_.subspan(row * vocab, vocab), context, workspace_, to);
}

void StepSampler::append_prompt_logprobs(const StepInFlight& step, const ScheduledSlice& slice,
                                         size_t first, ActiveRequest& to) const {
  const size_t end = first + size_t(slice.logits - drawn_rows(slice));
  for (size_t row = first; row < end; ++row) {
    const TopLogits& top = rows_[row];
    Sampled& sampled = to.prompt_sampled.emplace_back();
    sampled.token = step.requests[row].tokens.front();
    if (top.broken) continue;
    sampled.logprob = float(double(top.requested.front()) - top.log_sum);
    for (const Candidate& c : std::span(top.candidates).first(size_t(to.prompt_logprobs))) {
      sampled.top_logprobs.emplace_back(c.token, float(double(c.logit) - top.log_sum));
    }
  }
}

}  // namespace ridge
