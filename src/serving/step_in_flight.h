// A step that was launched and whose tokens have not been drawn.
#pragma once

#include <vector>

#include "engine/sampling/top_logits.h"
#include "serving/observer.h"
#include "serving/scheduler.h"
#include "step/step.h"

namespace ridge {

struct StepInFlight {
  ScheduledStep planned;
  int rows = 0;                            // of logits
  std::vector<TopLogitsRequest> requests;  // one for each row, at least
  std::vector<bool> whole_row;             // rows that only the whole row of logits decides
  bool may_run_ahead = true;  // the next step may be launched before this one's tokens are known

  ServingClock::time_point launched;
  double planning_s = 0;  // before the launch, drafts included
  StepReport report;      // filled by launcher and lander
  bool profiled = false;
  std::vector<Sequences> batch;  // of a profiled step
};

}  // namespace ridge
