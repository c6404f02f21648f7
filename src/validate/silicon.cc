#include "validate/silicon.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "validate/silicon_rows.h"

namespace ridge {

bool is_defective(const SiliconFile& file, const Measurement& row) {
  const bool vllm = file.framework == "vllm";
  switch (file.table) {
    case KernelKind::gemm:
      return vllm && row.dtype == "fp8_block";
    case KernelKind::context_mla:
    case KernelKind::generation_mla:
      return vllm;
    case KernelKind::moe:
      return vllm && row.dtype == "fp8" && (file.gpu == "h100_sxm" || file.gpu == "h200_sxm");
    case KernelKind::nccl:
    case KernelKind::custom_allreduce:
      return file.gpu == "l40s" && std::get<CollectiveCall>(row.call).ranks > 2;
    default:
      return false;
  }
}

std::vector<SiliconFile> find_silicon(const std::string& folder,
                                      std::vector<std::string>& ignored) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw Error("{}: no such folder", folder);
  std::vector<SiliconFile> files;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    std::string name = it->path().filename().string();
    if (name.ends_with(".gz")) name.resize(name.size() - 3);
    if (!name.ends_with(".csv")) continue;
    name.resize(name.size() - 4);
    const size_t dot = name.find('.');
    const std::string table = name.substr(0, dot);
    int family = 0;
    while (family < kFamilyCount && family_name(static_cast<KernelKind>(family)) != table) ++family;
    if (dot == std::string::npos || family == kFamilyCount) {
      ignored.push_back(it->path().string());
      continue;
    }
    files.push_back({it->path().string(), it->path().parent_path().filename().string(),
                     name.substr(dot + 1), static_cast<KernelKind>(family)});
  }
  std::sort(files.begin(), files.end(),
            [](const SiliconFile& a, const SiliconFile& b) { return a.path < b.path; });
  std::sort(ignored.begin(), ignored.end());
  return files;
}

void read_silicon(const SiliconFile& file, const GpuTraits& gpu,
                  const std::function<void(const Measurement&)>& use,
                  const std::function<void(const std::string&)>& complain) {
  CsvReader csv(file.path);
  const int kernel = csv.column("kernel_source");
  int time = csv.column("us");
  double unit = 1e-6;
  if (time < 0) time = csv.column("latency"), unit = 1e-3;  // the unthinned tables: milliseconds
  if (time < 0) throw Error("{}: row 1: no column 'us' or 'latency'", file.path);
  const RowReader fill = row_reader(csv, file, gpu);
  Measurement row;
  std::set<std::string> said;  // an unknown name stands in many rows
  while (csv.next()) {
    try {
      if (csv.fields() != csv.header().size())
        throw BadRow{
            fmt::format("{} fields where the header has {}", csv.fields(), csv.header().size())};
      row.kernel = kernel < 0 ? std::string_view() : csv.field(static_cast<size_t>(kernel));
      row.seconds = positive_field(csv, time) * unit;
      fill(csv, row);
      row.stratum = stratum_of(file.table, row.call);
    } catch (const BadRow& bad) {
      if (said.insert(bad.why).second) {
        complain(fmt::format("{}: row {}: {}", file.path, csv.line(), bad.why));
      }
      continue;
    }
    use(row);
  }
}

std::string machine_of_folder(std::string_view folder) {
  std::string name(folder);
  std::replace(name.begin(), name.end(), '_', '-');
  if (name == "a100-sxm") return "a100-sxm-80gb";
  if (name == "h200-sxm") return "h200";
  if (name == "b200-sxm") return "b200";
  if (name == "b300-sxm") return "b300";
  return name;
}

}  // namespace ridge
