#include "validate/score.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "machine/atlas.h"
#include "validate/rows.h"
#include "validate/silicon.h"

namespace ridge {
namespace {

constexpr size_t kMostComplaints = 20;  // per file; a broken export repeats itself

struct GroupRows {
  std::array<Rows, kMostStrata> strata;
  double distance = 0;
};

// One file's rows by (defective, dtype).
using FileRows = std::map<std::pair<bool, std::string>, GroupRows>;

// Looking a fit up costs more than using it; rows of one kind follow each other.
class FitCache {
 public:
  FitCache(const KernelFits& all, const SiliconFile& file, Arch arch)
      : all_(all), file_(file), arch_(arch) {}

  const KernelMatch& of(const Measurement& row) {
    const auto* attention = std::get_if<AttentionCall>(&row.call);
    const double dim = attention ? attention->head_dim : 0;
    Entry& entry = entries_[{row.dtype, row.kernel, dim}];
    if (!entry) {
      const bool plain = file_.table == KernelKind::context_attention ||
                         file_.table == KernelKind::generation_attention;
      entry = find_fit(
          all_, {file_.table, file_.framework, row.dtype, row.kernel, arch_, plain ? dim : 0});
    }
    return *entry;
  }

 private:
  using Entry = std::optional<KernelMatch>;
  const KernelFits& all_;
  const SiliconFile& file_;
  Arch arch_;
  std::map<std::tuple<std::string, std::string, double>, Entry> entries_;
};

FileRows score_file(const SiliconFile& file, const KernelFits& all,
                    const std::function<void(const std::string&)>& complain) {
  FileRows out;
  const Machine machine = find_machine(machine_of_folder(file.gpu));
  const GpuTraits gpu = gpu_traits(machine);
  FitCache fits(all, file, gpu.arch);
  size_t complaints = 0;
  read_silicon(
      file, gpu,
      [&](const Measurement& row) {
        const KernelMatch& match = fits.of(row);
        if (!match.fit) return;
        GroupRows& group = out[{is_defective(file, row), row.dtype}];
        Rows& rows = group.strata[static_cast<size_t>(row.stratum)];
        const double predicted = kernel_seconds(*match.fit, row.call, gpu);
        const double roof = roof_seconds(file.table, row.call, gpu);
        const Band band = band_of(match, row.stratum);
        rows.add(row.seconds, predicted, roof, band);
        group.distance = std::max(group.distance, match.distance);
      },
      [&](const std::string& line) {
        if (++complaints < kMostComplaints) complain(line);
        if (complaints == kMostComplaints) complain(file.path + ": further rows not reported");
      });
  return out;
}

ScoreGroup finish(const SiliconFile& file, const std::pair<bool, std::string>& key,
                  const GroupRows& rows) {
  ScoreGroup group;
  group.op = family_name(file.table);
  group.gpu = file.gpu;
  group.framework = file.framework;
  group.dtype = key.second;
  group.defective = key.first;
  group.distance = rows.distance;
  Rows all;
  const auto& names = stratum_names(file.table);
  for (size_t i = 0; i < names.size(); ++i) {
    if (rows.strata[i].errors.empty()) continue;
    all.merge(rows.strata[i]);
    group.strata.push_back({names[i], stats_of(rows.strata[i])});
  }
  group.stats = stats_of(all);
  return group;
}

}  // namespace

Scoreboard score_silicon(const std::string& folder, const KernelFits& all, int threads,
                         const std::function<void(const std::string&)>& complain) {
  Scoreboard board;
  std::vector<SiliconFile> files = find_silicon(folder, board.ignored);
  std::vector<std::vector<ScoreGroup>> found(files.size());
  std::atomic<size_t> next = 0;
  std::mutex speaking;
  std::set<std::string> said;  // all tables of a folder name the same GPU
  const auto say = [&](const std::string& line) {
    const std::lock_guard<std::mutex> lock(speaking);
    if (said.insert(line).second) complain(line);
  };
  const auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      try {
        for (const auto& [key, rows] : score_file(files[i], all, say))
          found[i].push_back(finish(files[i], key, rows));
      } catch (const Error& error) {
        const std::string text = error.what();
        const std::string folder_of_gpu = std::filesystem::path(files[i].path).parent_path();
        say(text.starts_with(files[i].path) ? text : folder_of_gpu + ": " + text);
      }
    }
  };
  std::vector<std::thread> team;
  for (int i = 1; i < threads; ++i) team.emplace_back(work);
  work();
  for (std::thread& one : team) one.join();

  for (auto& groups : found)
    for (ScoreGroup& group : groups) {
      add_weighted((group.defective ? board.apart : board.totals)[group.op], group.stats);
      board.groups.push_back(std::move(group));
    }
  std::stable_sort(board.groups.begin(), board.groups.end(),
                   [](const ScoreGroup& a, const ScoreGroup& b) {
                     return std::tie(a.op, a.gpu, a.framework, a.dtype) <
                            std::tie(b.op, b.gpu, b.framework, b.dtype);
                   });
  return board;
}

}  // namespace ridge
