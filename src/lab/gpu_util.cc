// What GPU utilisation says: for GPUs alone (cuda/).
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"

namespace ridge {

const Experiment kGpuUtilExperiment{
    "gpu-util",
    LabTopic::hardware,
    "What does GPU utilisation say?",
    "A kernel that waits keeps utilisation at 100 % and uses neither bandwidth nor tensor cores.",
    "diagnosis: a resident kernel is not a fed kernel",
    "ridge explain -m llama-3-70b -M 8xh100-sxm --observed 280tok/s --gpu-util 0.38 --context 4096",
    nullptr,
    gpu_util_on_cuda,
    5,
    {0, 0, 400e6, 8.2e9},
    "Needs an NVIDIA GPU: utilisation is a counter of its driver, and a CPU has no such counter."};

}  // namespace ridge
