// Measured rows grouped as they are fitted: one group per stack, architecture, format and kernel.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "roofline/kernel_fits.h"

namespace ridge {

struct FitRow {
  KernelCall call;
  float seconds = 0;
  uint8_t gpu = 0;   // index into Dataset::gpus
  uint8_t fold = 0;  // 0 or 1, by shape site
  uint8_t stratum = 0;
};

struct FitGroup {
  std::string stack, dtype, kernel;
  KernelKind family = KernelKind::gemm;
  Arch arch = Arch::other;
  std::vector<double> head_dims;
  std::vector<FitRow> rows;
};

struct Dataset {
  std::vector<std::string> gpus;  // folder names
  std::vector<GpuTraits> traits;
  std::vector<FitGroup> groups;  // in a fixed order
  std::vector<FitGroup> pools;   // see pooled_groups
};

// Rows the data's notes call defective are left out. `only`: one family's name, or empty for all.
Dataset load_dataset(const std::string& folder, const std::string& only);

// 16-bit products of one stack over all data-centre generations together, as the architecture
// "other": for a generation without data this was better than any one generation's numbers (other
// formats and GDDR parts were not). A group needs at least two generations.
std::vector<FitGroup> pooled_groups(const Dataset& data);

}  // namespace ridge
