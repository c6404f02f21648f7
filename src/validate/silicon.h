// Measured kernel times in the silicon layout: FOLDER/<gpu>/<table>.<framework>.csv[.gz].
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "roofline/kernels/call.h"

namespace ridge {

// One measured row.
struct Measurement {
  KernelCall call;
  double seconds = 0;
  std::string dtype;   // as scored: "bfloat16", "fp8/bfloat16" where the cache differs, "half"
  std::string kernel;  // what ran, as the table names it
  uint64_t site = 0;   // hash of the shape site: rows of one site are never split between halves
  int stratum = 0;     // index into stratum_names(family)
};

struct SiliconFile {
  std::string path, gpu, framework;
  KernelKind table = KernelKind::gemm;
};
// All tables below a folder, sorted by path. Tables this version does not know are left out and
// named in `ignored`. Throws Error when the folder is missing.
std::vector<SiliconFile> find_silicon(const std::string& folder, std::vector<std::string>& ignored);

// Whether the data's own notes call these rows defective: they are scored apart, never fitted.
bool is_defective(const SiliconFile& file, const Measurement& row);

// Calls `row` for each good row and `complain` with "PATH: row N: ..." for the first of those that
// cannot be read for the same reason. `gpu` gives cache sizes for what the collector kept warm.
// Throws Error for a file without the table's columns.
void read_silicon(const SiliconFile& file, const GpuTraits& gpu,
                  const std::function<void(const Measurement&)>& row,
                  const std::function<void(const std::string&)>& complain);

// The atlas name of a silicon folder's GPU ("h100_sxm" -> "h100-sxm").
std::string machine_of_folder(std::string_view folder);

}  // namespace ridge
