#include "machine/nvml.h"

#include <dlfcn.h>

#include "base/error.h"
#include "machine/atlas.h"

namespace ridge {
namespace {

// The few declarations needed from nvml.h, whose functions return 0 for success.
using Device = struct nvmlDevice_st*;
struct Memory {
  unsigned long long total, free, used;
};

class Library {
 public:
  Library() : handle_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename Function>
  Function find(const char* symbol) const {
    return handle_ ? reinterpret_cast<Function>(dlsym(handle_, symbol)) : nullptr;
  }

 private:
  void* handle_;
};

}  // namespace

std::optional<std::string> machine_of_device_name(std::string_view device_name) {
  std::string name(device_name);
  // Older drivers say "Tesla T4", newer ones "NVIDIA T4"; the atlas ignores the vendor.
  for (const std::string_view word : {"Tesla ", "GeForce "}) {
    const size_t at = name.find(word);
    if (at != std::string::npos) name.erase(at, word.size());
  }
  try {
    return find_machine(name).name;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<GpuFound> detect_gpus() {
  const Library library;
  const auto init = library.find<int (*)()>("nvmlInit_v2");
  const auto shutdown = library.find<int (*)()>("nvmlShutdown");
  const auto count_of = library.find<int (*)(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto device_at = library.find<int (*)(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  const auto name_of = library.find<int (*)(Device, char*, unsigned)>("nvmlDeviceGetName");
  const auto memory_of = library.find<int (*)(Device, Memory*)>("nvmlDeviceGetMemoryInfo");
  if (!init || !shutdown || !count_of || !device_at || !name_of || !memory_of) return {};
  if (init() != 0) return {};

  std::vector<GpuFound> gpus;
  unsigned count = 0;
  if (count_of(&count) != 0) count = 0;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    char name[96] = {};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
    Memory memory = {};
    if (device_at(i, &device) != 0 || name_of(device, name, sizeof name) != 0) continue;
    GpuFound gpu;
    gpu.name = name;
    if (memory_of(device, &memory) == 0) gpu.memory = static_cast<double>(memory.total);
    gpu.machine = machine_of_device_name(gpu.name).value_or("");
    gpus.push_back(std::move(gpu));
  }
  shutdown();
  return gpus;
}

}  // namespace ridge
