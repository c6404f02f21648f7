// The experiments by name; each is defined in the file of that name.
#pragma once

#include "lab/experiment.h"

namespace ridge {

extern const Experiment kHistoryExperiment;

}  // namespace ridge
