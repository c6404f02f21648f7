#include "serving/step_lander.h"

#include <algorithm>

namespace ridge {
namespace {

void count_accepted(ActiveRequest& request, int position) {
  if (int(request.accepted_at.size()) <= position) {
    request.accepted_at.resize(size_t(position) + 1);
  }
  ++request.accepted_at[size_t(position)];
}

// What only the first output of a request carries.
void add_first_output(ActiveRequest& request, RequestOutput& to) {
  if (request.has_output) return;
  request.has_output = true;
  to.cached_tokens = request.cached;
  to.prompt_sampled = std::move(request.prompt_sampled);
}

}  // namespace

ServingClock::time_point StepLander::land(StepInFlight& step, ServingClock::time_point began,
                                          bool newest, std::vector<RequestOutput>& to) {
  parts_.sampler.fetch(step, newest);
  const ServingClock::time_point now = ServingClock::now();
  StepReport& report = step.report;
  report.measured_s = seconds_between(began, now);
  report.began = began;
  report.ended = now;

  parts_.reports.begin_rows();
  size_t next = 0;
  for (const ScheduledSlice& slice : step.planned.slices) {
    const size_t first = next;
    next += size_t(slice.logits);
    StepRow& row = parts_.reports.add_row(slice, report);
    ActiveRequest* const request = parts_.requests.find(slice.id);
    if (request == nullptr) continue;  // cancelled or ended while this step was in flight
    parts_.sampler.append_prompt_logprobs(step, slice, first, *request);
    if (!slice.samples) continue;
    RequestOutput output = draw_tokens(*request, step, slice, first);
    count_tokens(report, slice.decodes ? &row : nullptr);
    if (!tokens_.empty()) {
      parts_.reports.on_tokens(*request, int(tokens_.size()), now);
      parts_.scheduler.accept(slice, tokens_);
    }
    add_first_output(*request, output);
    finish_if_ended(*request, output);
    to.push_back(std::move(output));
  }
  if (speculation_ != nullptr) speculation_->on_step(step);
  parts_.reports.on_step(step, parts_.scheduler, *operators_);
  return now;
}

// Draws behind each row while the draws equal the drafts.
RequestOutput StepLander::draw_tokens(ActiveRequest& request, StepInFlight& step,
                                      const ScheduledSlice& slice, size_t first) {
  first += size_t(slice.logits - 1 - slice.drafts);
  const std::span<const Token> given = step.planned.tokens_of(slice);
  Generation& generation = request.generation;
  RequestOutput output;
  output.id = request.id;
  tokens_.clear();
  for (int i = 0; i <= slice.drafts; ++i) {
    if (i > 0 && generation.has_mask()) generation.update_mask();
    if (generation.ended()) break;  // by its mask
    Sampled& sampled = output.sampled.emplace_back();
    try {
      parts_.sampler.draw(request, step, first + size_t(i), sampled);
    } catch (const std::exception& caught) {
      output.error = caught.what();
      output.sampled.pop_back();
      break;
    }
    tokens_.push_back(sampled.token);
    output.text += generation.push(sampled.token);
    if (generation.ended() || i == slice.drafts) break;
    if (sampled.token != given[given.size() - size_t(slice.drafts - i)]) break;
    count_accepted(request, i);
  }
  return output;
}

void StepLander::count_tokens(StepReport& report, StepRow* decoded) const {
  const int drawn = int(tokens_.size()), accepted = std::max(0, drawn - 1);
  report.generated_tokens += drawn;
  report.accepted_tokens += accepted;
  if (decoded == nullptr) return;
  decoded->tokens = drawn;
  decoded->accepted = accepted;
}

void StepLander::finish_if_ended(ActiveRequest& request, RequestOutput& output) {
  Generation& generation = request.generation;
  if (!output.error.empty()) generation.end(EndReason::failed);
  const std::optional<EndReason> reason = generation.ended();
  if (!reason) return;
  if (reason == EndReason::failed && output.error.empty()) output.error = generation.failure();
  output.text += generation.finish();
  output.end = reason;
  if (reason == EndReason::stop_string) output.stop = generation.stop();
  parts_.requests.finish(request, *reason);
}

}  // namespace ridge
