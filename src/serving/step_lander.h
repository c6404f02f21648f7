// Lands steps: waits for the oldest step in flight, draws its tokens and makes the outputs of its
// requests.
#pragma once

#include <vector>

#include "serving/speculation.h"
#include "serving/step_launcher.h"

namespace ridge {

class StepLander {
 public:
  // `speculation` may be null. `operators`: StepLauncher::operators(). Both outlive the lander.
  StepLander(const EngineParts& parts, Speculation* speculation, const Profile& operators)
      : parts_(parts), speculation_(speculation), operators_(&operators) {}

  // Appends what the step gave every request that still runs, and reports the step. `began`: when
  // the device could begin it. `newest`: no step was launched after it. Returns when it landed.
  ServingClock::time_point land(StepInFlight& step, ServingClock::time_point began, bool newest,
                                std::vector<RequestOutput>& to);

 private:
  RequestOutput draw_tokens(ActiveRequest& request, StepInFlight& step, const ScheduledSlice& slice,
                            size_t first);
  void count_tokens(StepReport& report, StepRow* decoded) const;
  void finish_if_ended(ActiveRequest& request, RequestOutput& output);

  EngineParts parts_;
  Speculation* speculation_;
  const Profile* operators_;
  std::vector<Token> tokens_;  // drawn for the slice at hand
};

}  // namespace ridge
