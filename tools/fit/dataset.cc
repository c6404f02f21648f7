#include "fit/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "machine/atlas.h"
#include "validate/silicon.h"

namespace ridge {
namespace {

// Groups with a single shape site cannot be split by site; their rows alternate instead.
void balance_folds(FitGroup& group) {
  size_t second = 0;
  for (const FitRow& row : group.rows) second += row.fold;
  if (12 * second >= group.rows.size() && 12 * (group.rows.size() - second) >= group.rows.size())
    return;
  for (size_t i = 0; i < group.rows.size(); ++i) group.rows[i].fold = i & 1;
}

}  // namespace

Dataset load_dataset(const std::string& folder, const std::string& only) {
  Dataset data;
  std::vector<std::string> ignored;
  std::map<std::string, FitGroup> groups;
  for (const SiliconFile& file : find_silicon(folder, ignored)) {
    if (!only.empty() && family_name(file.table) != only) continue;
    auto at = std::find(data.gpus.begin(), data.gpus.end(), file.gpu);
    if (at == data.gpus.end()) {
      data.traits.push_back(gpu_traits(find_machine(machine_of_folder(file.gpu))));
      data.gpus.push_back(file.gpu);
      at = data.gpus.end() - 1;
    }
    const auto gpu = static_cast<size_t>(at - data.gpus.begin());
    read_silicon(
        file, data.traits[gpu],
        [&](const Measurement& row) {
          if (is_defective(file, row)) return;
          // A collective moves bytes whatever they encode.
          const std::string dtype = file.table == KernelKind::nccl ? "any" : row.dtype;
          const Arch arch = data.traits[gpu].arch;
          FitGroup& group = groups[fmt::format("{}|{}|{}|{}|{}", family_name(file.table),
                                               file.framework, arch_name(arch), dtype, row.kernel)];
          if (group.rows.empty()) {
            group.stack = file.framework;
            group.dtype = dtype;
            group.kernel = row.kernel;
            group.family = file.table;
            group.arch = arch;
          }
          if (file.table == KernelKind::context_attention ||
              file.table == KernelKind::generation_attention) {
            const double dim = std::get<AttentionCall>(row.call).head_dim;
            auto& dims = group.head_dims;
            const auto place = std::lower_bound(dims.begin(), dims.end(), dim);
            if (place == dims.end() || *place != dim) dims.insert(place, dim);
          }
          group.rows.push_back(
              {row.call, static_cast<float>(row.seconds), static_cast<uint8_t>(gpu),
               static_cast<uint8_t>((row.site >> 17) & 1), static_cast<uint8_t>(row.stratum)});
        },
        [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  }
  for (auto& [key, group] : groups) {
    balance_folds(group);
    data.groups.push_back(std::move(group));
  }
  return data;
}

std::vector<FitGroup> pooled_groups(const Dataset& data) {
  std::map<std::string, std::vector<const FitGroup*>> pools;
  for (const FitGroup& group : data.groups)
    if (group.family == KernelKind::gemm && group.dtype == "bfloat16" && group.arch != Arch::ada &&
        group.arch != Arch::blackwell_rtx)
      pools[group.stack + "|" + group.dtype].push_back(&group);
  std::vector<FitGroup> out;
  for (const auto& [key, parts] : pools) {
    if (parts.size() < 2) continue;
    FitGroup pool;
    pool.stack = parts[0]->stack;
    pool.dtype = parts[0]->dtype;
    pool.kernel = "pooled";
    pool.arch = Arch::other;
    // Equal shares, however many rows a generation has.
    size_t least = parts[0]->rows.size();
    for (const FitGroup* part : parts) least = std::min(least, part->rows.size());
    for (const FitGroup* part : parts) {
      const size_t stride = std::max<size_t>(1, part->rows.size() / least);
      for (size_t i = 0; i < part->rows.size(); i += stride) pool.rows.push_back(part->rows[i]);
    }
    out.push_back(std::move(pool));
  }
  return out;
}

}  // namespace ridge
