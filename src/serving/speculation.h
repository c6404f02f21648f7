// Speculative decoding in the engine: the drafter, and the policy that decides how many drafts pay.
#pragma once

#include <memory>
#include <optional>

#include "serving/draft_policy.h"
#include "serving/drafter.h"
#include "serving/model_drafter.h"
#include "serving/step_in_flight.h"
#include "serving/step_predictor.h"

namespace ridge {

class Speculation {
 public:
  // Drafts for a model of `vocab` tokens come from the model of `draft` or, where it is null, from
  // the sequence's own text. The predictors (empty: none) time the model's steps and those of
  // `draft`; `predictor` outlives this.
  Speculation(std::unique_ptr<Runner> draft, int vocab, StepPredictor* predictor,
              std::optional<StepPredictor> draft_predictor, ModelDrafter::SamplingOf sampling);
  Speculation(const Speculation&) = delete;  // the policy refers to it

  Drafter& drafter() { return *drafter_; }
  // A step has landed: its time tells the policy what drafts cost.
  void on_step(const StepInFlight& step);

 private:
  double step_seconds(int sequences, int drafts, double past);

  StepPredictor* predictor_;
  std::optional<StepPredictor> draft_predictor_;
  DraftPolicy policy_;
  std::unique_ptr<Drafter> drafter_;
};

}  // namespace ridge
