// NVML by dlopen: the few declarations needed, whose functions return 0 for success.
#include <dlfcn.h>

#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

using Device = struct nvmlDevice_st*;

class Nvml {
 public:
  Nvml() : handle_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    const auto init = find<int (*)()>("nvmlInit_v2");
    ready_ = init && init() == 0;
  }
  bool ready() const { return ready_; }
  template <typename Function>
  Function find(const char* symbol) const {
    return handle_ ? reinterpret_cast<Function>(dlsym(handle_, symbol)) : nullptr;
  }

 private:
  void* handle_;  // stays open until the process ends
  bool ready_ = false;
};

// nvmlClocksEventReason* of nvml.h.
constexpr struct {
  unsigned long long bit;
  const char* words;
} kReasons[] = {{0x4, "the power limit"},  {0x8, "hardware slowdown"}, {0x20, "heat (software)"},
                {0x40, "heat (hardware)"}, {0x80, "the power brake"},  {0x2, "application clocks"}};

}  // namespace

Telemetry telemetry(const std::string& pci_bus_id) {
  static const Nvml nvml;
  Telemetry found;
  if (!nvml.ready()) return found;
  const auto by_bus = nvml.find<int (*)(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
  Device device = nullptr;
  if (!by_bus || by_bus(pci_bus_id.c_str(), &device) != 0) return found;
  unsigned value = 0;
  constexpr int kSmClock = 1, kGpuTemperature = 0;
  const auto clock = nvml.find<int (*)(Device, int, unsigned*)>("nvmlDeviceGetClockInfo");
  if (clock && clock(device, kSmClock, &value) == 0) found.clock = value * 1e6;
  const auto power = nvml.find<int (*)(Device, unsigned*)>("nvmlDeviceGetPowerUsage");
  if (power && power(device, &value) == 0) found.power = value * 1e-3;
  const auto heat = nvml.find<int (*)(Device, int, unsigned*)>("nvmlDeviceGetTemperature");
  if (heat && heat(device, kGpuTemperature, &value) == 0) found.temperature = value;
  struct {
    unsigned gpu, memory;
  } use = {};  // nvmlUtilization_t
  const auto rates = nvml.find<int (*)(Device, void*)>("nvmlDeviceGetUtilizationRates");
  if (rates && rates(device, &use) == 0) {
    found.utilisation = use.gpu / 100.0;
    found.memory_use = use.memory / 100.0;
  }
  const auto reasons =
      nvml.find<int (*)(Device, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
  unsigned long long bits = 0;
  if (reasons && reasons(device, &bits) == 0) {
    for (const auto& reason : kReasons) {
      if (!(bits & reason.bit)) continue;
      if (!found.limits.empty()) found.limits += " and ";
      found.limits += reason.words;
    }
  }
  return found;
}

}  // namespace ridge
