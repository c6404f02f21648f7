#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "machine/atlas.h"
#include "machine/nvml.h"
#include "measure/cuda/measure_cuda.h"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

// A GPU the atlas does not know: what the driver says about it.
Machine described(const cudaDeviceProp& properties) {
  Machine machine;
  machine.title = properties.name;
  for (const char* c = properties.name; *c; ++c) {
    machine.name += std::isalnum(static_cast<unsigned char>(*c))
                        ? static_cast<char>(std::tolower(static_cast<unsigned char>(*c)))
                        : '-';
  }
  machine.vendor = "NVIDIA";
  machine.isa = fmt::format("sm_{}{}", properties.major, properties.minor);
  machine.units = properties.multiProcessorCount;
  Level l1, l2, memory;
  l1.name = "L1";
  l1.scope = Scope::unit;
  l1.capacity = static_cast<double>(properties.sharedMemPerMultiprocessor);
  l1.instances = properties.multiProcessorCount;
  l2.name = "L2";
  l2.capacity = properties.l2CacheSize;
  memory.name = "HBM";
  memory.capacity = static_cast<double>(properties.totalGlobalMem);
  machine.levels = {l1, l2, memory};
  machine.provenance[""] = {Origin::derived, "the CUDA driver", {}, ""};
  return machine;
}

Machine base_of(const cudaDeviceProp& properties) {
  if (const std::optional<std::string> name = machine_of_device_name(properties.name)) {
    return find_machine(*name);
  }
  return described(properties);
}

struct Step {
  const char* name;
  void (*measure)(CudaRun&);
};
// The clock first, which others refer to; what heats the chip last.
constexpr Step kSteps[] = {{"multiply-add peaks", measure_fma},
                           {"latency", measure_latency},
                           {"launch costs", measure_launches},
                           {"caches", measure_caches},
                           {"device memory", measure_memory},
                           {"host link", measure_host_link},
                           {"tensor peaks", measure_tensor},
                           {"matrix products", measure_gemm},
                           {"sustained matrix products", measure_gemm_sustained},
                           {"sustained tensor peaks", measure_tensor_sustained}};

}  // namespace

CudaDevices cuda_devices() {
  CudaDevices devices;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    devices.why_none = fmt::format("the CUDA driver says \"{}\"", cudaGetErrorString(status));
    return devices;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties = {};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) break;
    devices.names.push_back(properties.name);
  }
  if (devices.names.empty()) devices.why_none = "the CUDA driver shows none";
  return devices;
}

Report measure_cuda(int index, Effort effort, const StepProgress& progress) {
  CudaRun run(index, effort, progress);
  run.report.base = base_of(run.properties);
  run.note_conditions("before");
  for (const Step& step : kSteps) {
    try {
      step.measure(run);
    } catch (const Error& error) {
      run.report.missing.push_back(fmt::format("{}: {}", step.name, error.what()));
      // After a kernel's fault the context is lost, and all that follows would only repeat it.
      if (cudaDeviceSynchronize() != cudaSuccess) break;
    }
  }
  run.note_conditions("after");
  return std::move(run.report);
}

}  // namespace ridge
