// Claims about hardware that the lab does not drive yet: they are listed with what they need.
#include "base/error.h"
#include "lab/catalogue.h"

namespace ridge {
namespace {

LabResult refuse_to_run(Lab&) { throw Error("this experiment cannot run here"); }

}  // namespace

const Experiment kGpuUtilExperiment{
    "gpu-util",
    LabTopic::hardware,
    "What does GPU utilisation say?",
    "A kernel that waits keeps utilisation at 100 % and uses neither bandwidth nor tensor cores.",
    "diagnosis: a resident kernel is not a fed kernel",
    "ridge explain metrics.prom dcgm.prom",
    false,
    false,
    0,
    refuse_to_run,
    "Needs an NVIDIA GPU: utilisation is a counter of its driver, and a CPU has no such counter. "
    "The lab has no CUDA kernels yet."};

}  // namespace ridge
