// Stands in for the CUDA engine in a build without the toolkit.
#ifndef RIDGE_HAS_CUDA

#include "base/error.h"
#include "engine/cuda/host/device_model.h"
#include "engine/runner/runner.h"

namespace ridge {
namespace {

[[noreturn]] void say_no_cuda() {
  throw Error("this ridge was built without the CUDA toolkit: --device cpu runs everywhere");
}

}  // namespace

namespace cuda {
DeviceFound find_device() { say_no_cuda(); }
void check_shape(const ModelShape&, KvFormat) { say_no_cuda(); }
}  // namespace cuda

std::unique_ptr<Runner> make_cuda_runner(Weights, const RunnerOptions&) { say_no_cuda(); }

}  // namespace ridge

#endif
