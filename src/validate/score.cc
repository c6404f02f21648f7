#include "validate/score.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "machine/atlas.h"
#include "validate/silicon.h"

namespace ridge {
namespace {

constexpr size_t kMostComplaints = 20;  // per file; a broken export repeats itself

// The rows of one stratum of one group, kept small: quantiles need them all.
struct Rows {
  std::vector<float> errors, ratios;
  double naive = 0;
  size_t outside = 0, in_band = 0;

  void merge(const Rows& other) {
    errors.insert(errors.end(), other.errors.begin(), other.errors.end());
    ratios.insert(ratios.end(), other.ratios.begin(), other.ratios.end());
    naive += other.naive;
    outside += other.outside;
    in_band += other.in_band;
  }
};

float quantile(std::vector<float> values, double q) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

ScoreStats stats_of(const Rows& rows) {
  ScoreStats stats;
  stats.rows = rows.errors.size();
  if (stats.rows == 0) return stats;
  const double count = static_cast<double>(stats.rows);
  double sum = 0;
  for (float error : rows.errors) sum += error;
  stats.mape = 100 * sum / count;
  stats.median = 100.0 * quantile(rows.errors, 0.5);
  stats.p90 = 100.0 * quantile(rows.errors, 0.9);
  stats.bias = quantile(rows.ratios, 0.5);
  stats.naive_mape = 100 * rows.naive / count;
  stats.outside_physics = rows.outside;
  stats.in_band = static_cast<double>(rows.in_band) / count;
  return stats;
}

// Row-weighted means, as the data's baselines are.
void add_weighted(ScoreStats& total, const ScoreStats& part) {
  const double old = static_cast<double>(total.rows), fresh = static_cast<double>(part.rows);
  if (old + fresh == 0) return;
  const auto mean = [&](double a, double b) { return (a * old + b * fresh) / (old + fresh); };
  total.mape = mean(total.mape, part.mape);
  total.median = mean(total.median, part.median);
  total.p90 = mean(total.p90, part.p90);
  total.bias = mean(total.bias, part.bias);
  total.naive_mape = mean(total.naive_mape, part.naive_mape);
  total.in_band = mean(total.in_band, part.in_band);
  total.rows += part.rows;
  total.outside_physics += part.outside_physics;
}

struct GroupRows {
  std::array<Rows, kMostStrata> strata;
  double distance = 0;
};

// One file's rows by (defective, dtype).
using FileRows = std::map<std::pair<bool, std::string>, GroupRows>;

// Looking a fit up costs more than using it; rows of one kind follow each other.
class FitCache {
 public:
  FitCache(const Calibration& calibration, const SiliconFile& file, Arch arch)
      : calibration_(calibration), file_(file), arch_(arch) {}

  const KernelMatch& of(const Measurement& row) {
    const auto* attention = std::get_if<AttentionCall>(&row.call);
    const double dim = attention ? attention->qk_dim : 0;
    Entry& entry = entries_[{row.dtype, row.kernel, dim}];
    if (!entry) {
      const bool plain = file_.table == KernelFamily::context_attention ||
                         file_.table == KernelFamily::generation_attention;
      entry = find_fit(calibration_, {file_.table, file_.framework, row.dtype, row.kernel, arch_,
                                      plain ? dim : 0});
    }
    return *entry;
  }

 private:
  using Entry = std::optional<KernelMatch>;
  const Calibration& calibration_;
  const SiliconFile& file_;
  Arch arch_;
  std::map<std::tuple<std::string, std::string, double>, Entry> entries_;
};

FileRows score_file(const SiliconFile& file, const Calibration& calibration,
                    const std::function<void(const std::string&)>& complain) {
  FileRows out;
  const Machine machine = find_machine(machine_of_folder(file.gpu));
  const GpuTraits gpu = gpu_traits(machine);
  FitCache fits(calibration, file, gpu.arch);
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
        const double ratio = row.seconds / predicted;
        rows.errors.push_back(static_cast<float>(std::fabs(predicted / row.seconds - 1)));
        rows.ratios.push_back(static_cast<float>(ratio));
        rows.naive += std::fabs(roof / row.seconds - 1);
        rows.outside += row.seconds < roof;
        rows.in_band += ratio >= band.low && ratio <= band.high;
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

Scoreboard score_silicon(const std::string& folder, const Calibration& calibration, int threads,
                         const std::function<void(const std::string&)>& complain) {
  Scoreboard board;
  std::vector<SiliconFile> files = find_silicon(folder, board.ignored);
  std::vector<std::vector<ScoreGroup>> found(files.size());
  std::atomic<size_t> next = 0;
  std::mutex speaking;
  const auto say = [&](const std::string& line) {
    const std::lock_guard<std::mutex> lock(speaking);
    complain(line);
  };
  const auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      try {
        for (const auto& [key, rows] : score_file(files[i], calibration, say))
          found[i].push_back(finish(files[i], key, rows));
      } catch (const Error& error) {
        const std::string text = error.what();
        say(text.starts_with(files[i].path) ? text : files[i].path + ": row 1: " + text);
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
