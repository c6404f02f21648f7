// NVIDIA GPUs of this host, through the driver's library when it is there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine/machine.h"

namespace ridge {

struct GpuFound {
  std::string name;     // as the driver says: "NVIDIA H100 80GB HBM3"
  double memory = 0;    // bytes
  std::string machine;  // the atlas entry it matches; empty if none does
};

// libnvidia-ml.so.1 is opened at run time: a host without it simply has no GPUs here.
std::vector<GpuFound> detect_gpus();

// The atlas entry for a driver's device name: "NVIDIA A100-SXM4-80GB" is a100-sxm-80gb.
std::optional<std::string> machine_of_device_name(std::string_view device_name);

}  // namespace ridge
