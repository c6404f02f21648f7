#include "serving/speculation.h"

#include <algorithm>

#include "serving/ngram_drafter.h"

namespace ridge {

Speculation::Speculation(std::unique_ptr<Runner> draft, int vocab, StepPredictor* predictor,
                         std::optional<StepPredictor> draft_predictor,
                         ModelDrafter::SamplingOf sampling)
    : predictor_(predictor),
      draft_predictor_(std::move(draft_predictor)),
      policy_(predictor == nullptr ? DraftPolicy::StepSeconds()
                                   : [this](int sequences, int drafts, double past) {
                                       return step_seconds(sequences, drafts, past);
                                     }) {
  if (draft == nullptr) {
    drafter_ = std::make_unique<NgramDrafter>(policy_);
  } else {
    drafter_ =
        std::make_unique<ModelDrafter>(std::move(draft), vocab, policy_, std::move(sampling));
  }
}

double Speculation::step_seconds(int sequences, int drafts, double past) {
  const Sequences step{double(sequences), 1.0 + drafts, past, 1.0 + drafts};
  const Sequences draft{double(sequences), 1, past, 1};
  const double each = draft_predictor_ ? draft_predictor_->estimate({&draft, 1}).expected_s : 0;
  return predictor_->estimate({&step, 1}).expected_s + drafts * each;
}

void Speculation::on_step(const StepInFlight& step) {
  if (step.report.prefill_tokens > 0 || !drafter_->cost_was_typical()) return;
  // A step's time depends on its largest number of drafts, which is the policy's choice.
  int drafts = 0;
  double past = 0;
  for (const ScheduledSlice& slice : step.planned.slices) {
    drafts = std::max(drafts, slice.drafts);
    past += slice.past;
  }
  const int sequences = int(step.planned.slices.size());
  policy_.on_step(sequences, drafts, past / sequences, step.planning_s + step.report.measured_s);
}

}  // namespace ridge
