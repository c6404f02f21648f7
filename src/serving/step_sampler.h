// From the rows of a step's logits to tokens: what the runner is asked for each row when the step
// is launched, and the draws from its answers when the step lands.
#pragma once

#include <span>
#include <vector>

#include "engine/runner/runner.h"
#include "engine/sampling/sampler.h"
#include "serving/active_requests.h"
#include "serving/step_in_flight.h"

namespace ridge {

class StepSampler {
 public:
  explicit StepSampler(Runner& runner) : runner_(&runner) {}  // which outlives the sampler

  // After Runner::run() of the step: requests the top logits of every row. Says in may_run_ahead
  // whether the tokens of all rows can be drawn where the logits lie; `drafts`: the next step needs
  // the tokens to draft from.
  void request_rows(StepInFlight& step, ActiveRequests& requests, bool drafts);

  // Waits for the step. `newest`: none was launched after it, so that its logits can be read.
  void fetch(const StepInFlight& step, bool newest);
  // Of the step that was fetched: draws the request's next token from row `row`. Throws Error where
  // nothing is left to draw from.
  void draw(const ActiveRequest& request, const StepInFlight& step, size_t row, Sampled& to);
  // Appends the log probabilities of the prompt tokens that follow the rows of a slice, the first
  // of which is `first`.
  void append_prompt_logprobs(const StepInFlight& step, const ScheduledSlice& slice, size_t first,
                              ActiveRequest& to) const;

 private:
  bool request_draw(const ActiveRequest& request, const ScheduledStep& step,
                    const ScheduledSlice& slice, int drafts, TopLogitsRequest& wanted);

  Runner* runner_;
  SamplerWorkspace workspace_;
  std::vector<Token> context_tokens_;
  // Of the step that was fetched.
  std::span<const TopLogits> rows_;
  std::span<const float> logits_;  // read where a draw needs them
  bool newest_ = false;
};

}  // namespace ridge
