// `ridge measure --ranks --device cuda`: the sums of GPU ranks by size, by each of the backends
// of engine/cuda/ranks/: the only collective that ranks make in device memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "measure/ranks/measure_collectives.h"

namespace ridge {

struct GpuSumTime {
  std::string backend;  // "direct", "NCCL", "host"
  CollectiveTime time;
};

struct GpuSumsReport {
  int ranks = 0, devices = 0;  // devices: that the ranks use
  std::string device;          // name of rank 0's
  std::vector<GpuSumTime> times;
  std::vector<std::string> missing;  // backends that cannot run here, and why

  // Ranks that share a device take turns on it: their times say nothing about a link.
  bool ranks_share_a_device() const { return devices < ranks; }
  // The link that explains the direct sums of the smallest and of the largest size. Nothing where
  // there are none, or ranks share a device.
  std::optional<RankLink> link() const;
  // By that link and the predictor's formulas; nothing for sums through the host.
  std::optional<double> predicted_s(const GpuSumTime& sum) const;
};

// Starts the ranks as measure_ranks() does. Throws Error where there is no CUDA device.
GpuSumsReport measure_gpu_sums(int ranks, Effort effort, const StepProgress& progress);

// All times under "measurement"; a machine file that holds the link too, where there is one and the
// atlas knows the device: docs/json.md.
nlohmann::json gpu_sums_to_json(const GpuSumsReport& report, const std::string& date,
                                Effort effort);

}  // namespace ridge
