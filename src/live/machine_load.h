// Who else uses the processors that an engine runs on: what the live stream warns of.
#pragma once

#include <string>

#include "measure/cpu/noise.h"

namespace ridge {

class MachineLoad {
 public:
  // From this share of the processors' time on, steps are visibly slower than predicted. The page
  // itself stays below it: its browser draws on a few percent.
  static constexpr double kBusy = 0.15;

  MachineLoad();
  // The share that others took since the last call, or since the beginning.
  double others();

 private:
  Disturbance last_;
};

// {"others": 0.4, "busy": true}: rounded, so that a quiet machine sends nothing new.
std::string load_json(double others);

}  // namespace ridge
