// Everything `ridge measure` finds out about an NVIDIA GPU. Without the CUDA toolkit at build time
// there are simply no devices.
#pragma once

#include <string>
#include <vector>

#include "measure/reading.h"

namespace ridge {

struct CudaDevices {
  std::vector<std::string> names;  // by index, as the driver says
  std::string why_none;            // for a person, when there is none
};
CudaDevices cuda_devices();

// Throws Error when the device fails; what one benchmark could not do is in `missing`.
Report measure_cuda(int index, Effort effort, const StepProgress& progress);

}  // namespace ridge
