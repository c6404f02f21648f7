// The experiments by name; each is defined in the file of that name.
#pragma once

#include "lab/experiment.h"

namespace ridge {

extern const Experiment kHistoryExperiment;
extern const Experiment kRooflineExperiment;
extern const Experiment kLatencyHidingExperiment;
extern const Experiment kAccessPatternsExperiment;
extern const Experiment kStagesExperiment;
extern const Experiment kLaunchExperiment;
extern const Experiment kAttentionExperiment;
extern const Experiment kFusionExperiment;
extern const Experiment kTilesExperiment;
extern const Experiment kFlopsNotTimeExperiment;
extern const Experiment kRecomputeExperiment;

}  // namespace ridge
