// The GPU's clock, limits and processes, for doubts about an experiment (lab_doubt.h).
#include <dlfcn.h>

#include "lab/lab_doubt.h"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

// Processes that compute on a device; 0 where NVML does not tell. Inside a container NVML may list
// none, or process ids of the host: only their number is used.
int compute_processes(const char* bus_id) {
  using NvmlDevice = struct nvmlDevice_st*;
  static void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (nvml == nullptr) return 0;
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto by_bus = reinterpret_cast<int (*)(const char*, NvmlDevice*)>(
      dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2"));
  const auto list = reinterpret_cast<int (*)(NvmlDevice, unsigned*, void*)>(
      dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3"));
  NvmlDevice device = nullptr;
  if (!init || !by_bus || !list || init() != 0 || by_bus(bus_id, &device) != 0) return 0;
  // Without room for any the call returns how many there are: 0 is success (none), 7 is
  // NVML_ERROR_INSUFFICIENT_SIZE.
  constexpr int kTooSmall = 7;
  unsigned count = 0;
  const int answer = list(device, &count, nullptr);
  return answer == 0 || answer == kTooSmall ? int(count) : 0;
}

}  // namespace

GpuMoment gpu_moment() {
  char bus_id[32] = "";
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0) != cudaSuccess) return {};
  const Telemetry now = telemetry(bus_id);
  GpuMoment moment;
  moment.clock = now.clock.value_or(0);
  moment.limits = now.limits;
  moment.processes = compute_processes(bus_id);
  return moment;
}

}  // namespace ridge
