// The experiments that measure kernels of their own on CUDA; each is defined in the file of that
// name. In a build without CUDA they throw Error.
#pragma once

#include "lab/experiment.h"

namespace ridge {

LabResult roofline_on_cuda(Lab& lab);
LabResult latency_hiding_on_cuda(Lab& lab);
LabResult access_patterns_on_cuda(Lab& lab);
LabResult stages_on_cuda(Lab& lab);
LabResult gpu_util_on_cuda(Lab& lab);
LabResult launch_on_cuda(Lab& lab);
LabResult attention_on_cuda(Lab& lab);
LabResult fusion_on_cuda(Lab& lab);
LabResult tiles_on_cuda(Lab& lab);
LabResult flops_not_time_on_cuda(Lab& lab);
LabResult recompute_on_cuda(Lab& lab);

}  // namespace ridge
