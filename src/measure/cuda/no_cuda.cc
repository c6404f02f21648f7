// Stands in for the CUDA side in a build without the toolkit.
#ifndef RIDGE_HAS_CUDA

#include "base/error.h"
#include "measure/cuda/measure_cuda.h"

namespace ridge {

CudaDevices cuda_devices() { return {{}, "this ridge was built without the CUDA toolkit"}; }

Report measure_cuda(int, Effort, const StepProgress&) {
  throw Error("{}", cuda_devices().why_none);
}

}  // namespace ridge

#endif
