// Stands in for the CUDA engine in a build without the toolkit.
#ifndef RIDGE_HAS_CUDA

#include "base/error.h"
#include "engine/runner.h"

namespace ridge {

std::unique_ptr<Runner> make_cuda_runner(Weights, const RunnerOptions&) {
  throw Error("this ridge was built without the CUDA toolkit: --device cpu runs everywhere");
}

}  // namespace ridge

#endif
