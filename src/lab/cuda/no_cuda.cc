// Stands in for the lab's kernels in a build without the toolkit.
#ifndef RIDGE_HAS_CUDA

#include "base/error.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab_doubt.h"

namespace ridge {
namespace {

LabResult lab_without_cuda() { throw Error("this ridge was built without the CUDA toolkit"); }

}  // namespace

GpuMoment gpu_moment() { return {}; }

LabResult roofline_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult latency_hiding_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult access_patterns_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult stages_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult gpu_util_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult launch_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult attention_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult fusion_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult tiles_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult flops_not_time_on_cuda(Lab&) { return lab_without_cuda(); }
LabResult recompute_on_cuda(Lab&) { return lab_without_cuda(); }

}  // namespace ridge

#endif
