#include "lab/lab_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/affinity.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "engine/cuda/host/device_model.h"
#include "lab/levels.h"
#include "measure/cpu/read_probe.h"

namespace ridge {
namespace {

constexpr double kThreadBytes = 1e6;  // a stack, and buffers for the tiles of a GEMM
// Whole huge pages of each array, the stacks of threads and the allocator's own pages.
constexpr double kProcessSlack = 16e6;

// A line of /proc/self/status in bytes: "VmHWM:     1234 kB".
double status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kilobytes = 0;
    if (word == key + ":" && file >> kilobytes) return 1024 * kilobytes;
  }
  return 0;
}

}  // namespace

double own_bytes(const Experiment& e, LabDevice device, bool quick) {
  if (device == LabDevice::cuda) return quick ? e.memory.quick_cuda : e.memory.cuda;
  if (e.on_cpu == nullptr) return 0;
  return (quick ? e.memory.quick_cpu : e.memory.cpu) +
         kThreadBytes * double(usable_processors().size());
}

double announced_bytes(const Experiment& e, LabDevice device, bool quick) {
  const double own = own_bytes(e, device, quick);
  if (device == LabDevice::cuda || !e.ceilings || e.on_cpu == nullptr) return own;
  return std::max(own, std::max(kMostProbed, probe_bytes()) + kProcessSlack);
}

std::string why_no_room(const Lab& lab, const Experiment& experiment) {
  const double own = own_bytes(experiment, lab.options().device, lab.quick());
  const double free = lab.on_cuda() ? cuda::find_device().free_bytes : free_bytes();
  if (own <= free) return "";
  return fmt::format("It holds up to {}, and {} of {} are free.", pretty_bytes(own),
                     pretty_bytes(free), lab.on_cuda() ? "the device's memory" : "memory");
}

PeakMemory::PeakMemory() {
  // 5 sets the peak back to what is resident now (proc(5)).
  const bool reset = (std::ofstream("/proc/self/clear_refs") << 5).flush().good();
  if (reset) before_ = status_bytes("VmRSS");
}

double PeakMemory::growth() const {
  return before_ > 0 ? std::max(0.0, status_bytes("VmHWM") - before_) : 0;
}

}  // namespace ridge
