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

// The model and its steps.
extern const Experiment kDecodeExperiment;
extern const Experiment kPrefillDecodeExperiment;
extern const Experiment kBatchingExperiment;
extern const Experiment kContextExperiment;
extern const Experiment kKvCacheExperiment;
extern const Experiment kGqaExperiment;
extern const Experiment kMemoryExperiment;

extern const Experiment kWeightsBitsExperiment;
extern const Experiment kKvBitsExperiment;

extern const Experiment kPagesExperiment;
extern const Experiment kPrefixReuseExperiment;
extern const Experiment kContinuousBatchingExperiment;
extern const Experiment kChunkedPrefillExperiment;
extern const Experiment kSpeculationExperiment;

extern const Experiment kRanksExperiment;
extern const Experiment kTensorParallelExperiment;
extern const Experiment kGpuUtilExperiment;

}  // namespace ridge
