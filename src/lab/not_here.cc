// Claims about hardware that the lab does not drive yet: they are listed with what they need.
#include "base/error.h"
#include "lab/catalogue.h"

namespace ridge {
namespace {

LabResult refuse_to_run(Lab&) { throw Error("this experiment cannot run here"); }

}  // namespace

const Experiment kTensorParallelExperiment{
    "tensor-parallel",
    LabTopic::serving,
    "What does splitting a model over devices gain?",
    "Each of n devices reads 1/n of the weights per token, and two all-reduces per layer take part "
    "of the gain.",
    "tensor parallelism",
    "ridge predict -m llama-3-70b -M 8xh100-sxm -b 1,32",
    false,
    false,
    0,
    refuse_to_run,
    "Needs two or more devices with memory of their own: ranks on one CPU (ridge bench --ranks 2) "
    "read "
    "the same memory, so cutting a model gains nothing there. The prediction has it: see the next "
    "command."};

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
