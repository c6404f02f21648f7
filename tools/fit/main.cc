// ridge_fit: fits the calibrated stacks to measured kernels and prints how right they are.
//
//   ridge_fit DATA --write atlas/stacks     fit, score by halves, write the stack files
//   ridge_fit DATA --only gemm --write ...  the same for one kernel family
//   ridge_fit DATA --without h200_sxm       fit without one GPU, score that GPU
//   ridge_fit DATA --endpoints  then the host's share, from endpoints (printed)
//
// Each shape site falls into one of two halves. Every row is scored by a fit that saw only the
// other half; the numbers written come from a last fit to both. The data stays where it is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "fit/endpoint.h"
#include "fit/fit.h"

namespace ridge {
namespace {

struct Score {
  std::vector<float> errors;  // |predicted / measured - 1|

  void add(double predicted, double measured) {
    errors.push_back(static_cast<float>(std::fabs(predicted / measured - 1)));
  }
  double mape() const {
    double sum = 0;
    for (float e : errors) sum += e;
    return errors.empty() ? 0 : 100 * sum / static_cast<double>(errors.size());
  }
  double quantile(double q) const {
    if (errors.empty()) return 0;
    std::vector<float> sorted = errors;
    const auto at =
        sorted.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), at, sorted.end());
    return 100 * *at;
  }
};

// The ratios measured / predicted without a share `tail` at each end. Few rows: the neighbours'
// band.
Band band_from(std::vector<double> ratios, const Band& otherwise, double tail) {
  if (ratios.size() < 40) return otherwise;
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double q) {
    return ratios[static_cast<size_t>(q * static_cast<double>(ratios.size() - 1))];
  };
  return {std::min(1.0, at(tail)), std::max(1.0, at(1 - tail))};
}

using Residuals = std::array<std::vector<double>, kMostStrata>;
std::vector<Band> bands_from(const Residuals& residuals, KernelKind family, double tail) {
  std::vector<double> all;
  for (const auto& part : residuals) all.insert(all.end(), part.begin(), part.end());
  const Band whole = band_from(all, {0.7, 1.4}, tail);
  std::vector<Band> bands;
  for (size_t i = 0; i < stratum_names(family).size(); ++i)
    bands.push_back(band_from(residuals[i], whole, tail));
  return bands;
}

// Rows of one half inside bands made from the other half, both ways.
struct Coverage {
  double inside = 0, rows = 0;
};
Coverage cover(const std::array<Residuals, 2>& halves, KernelKind family, double tail) {
  Coverage out;
  for (size_t fold = 0; fold < 2; ++fold) {
    const std::vector<Band> bands = bands_from(halves[1 - fold], family, tail);
    for (size_t s = 0; s < bands.size(); ++s)
      for (double ratio : halves[fold][s]) {
        out.inside += ratio >= bands[s].low && ratio <= bands[s].high;
        out.rows += 1;
      }
  }
  return out;
}

// Unseen sites vary more than seen ones, so the tails cut off are thinner than 10 %: for each
// family, those with which bands from one half hold 80 % of the other.
void set_bands(KernelFits& fits, const std::vector<std::array<Residuals, 2>>& residuals) {
  for (int f = 0; f < kFamilyCount; ++f) {
    const auto family = static_cast<KernelKind>(f);
    double best_tail = 0.1, best_share = 0;
    for (double tail = 0.12; tail >= 0.03; tail -= 0.005) {
      Coverage sum;
      for (size_t i = 0; i < residuals.size(); ++i) {
        if (fits[i].family != family) continue;
        const Coverage part = cover(residuals[i], family, tail);
        sum.inside += part.inside;
        sum.rows += part.rows;
      }
      if (sum.rows == 0) break;
      const double share = sum.inside / sum.rows;
      if (std::fabs(share - 0.8) < std::fabs(best_share - 0.8))
        best_share = share, best_tail = tail;
    }
    if (best_share == 0) continue;
    fmt::print("{}: bands without {:.1f} % at each end hold {:.1f} % of the other half\n",
               family_name(family), 100 * best_tail, 100 * best_share);
    for (size_t i = 0; i < residuals.size(); ++i) {
      if (fits[i].family != family) continue;
      Residuals both = residuals[i][0];
      for (size_t s = 0; s < kMostStrata; ++s)
        both[s].insert(both[s].end(), residuals[i][1][s].begin(), residuals[i][1][s].end());
      fits[i].bands = bands_from(both, family, best_tail);
    }
  }
}

struct Options {
  std::string data, write, without, only;
  FitEffort effort;
};

KernelFit describe(const FitGroup& group, const Dataset& data) {
  KernelFit fit;
  fit.stack = group.stack;
  fit.family = group.family;
  fit.arch = group.arch;
  fit.dtype = group.dtype;
  fit.kernel = group.kernel;
  fit.head_dims = group.head_dims;
  fit.rows = static_cast<double>(group.rows.size());
  std::array<bool, 256> seen{};
  for (const FitRow& row : group.rows) seen[row.gpu] = true;
  for (size_t i = 0; i < data.gpus.size(); ++i)
    if (seen[i]) fit.gpus.push_back(data.gpus[i]);
  return fit;
}

std::vector<const FitRow*> pick(const FitGroup& group,
                                const std::function<bool(const FitRow&)>& use) {
  std::vector<const FitRow*> rows;
  for (const FitRow& row : group.rows)
    if (use(row)) rows.push_back(&row);
  return rows;
}

void print_scores(const std::map<std::string, Score>& scores) {
  for (const auto& [name, score] : scores) {
    fmt::print("{:<58} {:>7} rows  MAPE {:5.1f}  median {:5.1f}  p90 {:5.1f}\n", name,
               score.errors.size(), score.mape(), score.quantile(0.5), score.quantile(0.9));
  }
}

// Scores by halves, then fits both.
KernelFits cross_fit(const Dataset& data, const Options& options) {
  KernelFits fits;
  std::map<std::string, Score> totals, by_gpu, by_stratum;
  std::vector<std::array<Residuals, 2>> all_residuals;
  for (const FitGroup& group : data.groups) {
    KernelFit fit = describe(group, data);
    std::array<Residuals, 2>& residuals = all_residuals.emplace_back();
    Score score;
    const std::string name(family_name(group.family));
    std::array<KernelFit, 2> half = {fit, fit};
    for (uint8_t fold = 0; fold < 2; ++fold) {
      half[fold].params =
          fit_params(group.family, pick(group, [&](const FitRow& r) { return r.fold != fold; }),
                     data.traits, options.effort);
      for (const FitRow& row : group.rows) {
        if (row.fold != fold) continue;
        const double predicted = kernel_seconds(half[fold], row.call, data.traits[row.gpu]);
        residuals[fold][row.stratum].push_back(row.seconds / predicted);
        score.add(predicted, row.seconds);
        totals[name].add(predicted, row.seconds);
        by_gpu[name + " " + data.gpus[row.gpu]].add(predicted, row.seconds);
        by_stratum[name + " " + stratum_names(group.family)[row.stratum]].add(predicted,
                                                                              row.seconds);
      }
    }
    fit.mape = score.mape();
    fit.median = score.quantile(0.5);
    fit.params = fit_params(group.family, pick(group, [](const FitRow&) { return true; }),
                            data.traits, options.effort);
    print_scores({{fmt::format("{} {} {} {} {}", name, group.stack, arch_name(group.arch),
                               group.dtype, group.kernel.substr(0, 24)),
                   score}});
    std::fflush(stdout);
    fits.push_back(std::move(fit));
  }
  set_bands(fits, all_residuals);
  for (const FitGroup& pool : data.pools) {  // never scored: their rows are above
    KernelFit fit = describe(pool, data);
    fit.bands.assign(3, {0.7, 1.35});
    fit.params = fit_params(pool.family, pick(pool, [](const FitRow&) { return true; }),
                            data.traits, options.effort);
    fits.push_back(std::move(fit));
  }
  fmt::print("\nHeld-out halves, by operator, GPU and stratum\n");
  print_scores(totals);
  print_scores(by_gpu);
  print_scores(by_stratum);
  return fits;
}

// Fits every group without one GPU and scores that GPU with the nearest fits.
void leave_out(const Dataset& data, const Options& options) {
  const auto at = std::find(data.gpus.begin(), data.gpus.end(), options.without);
  if (at == data.gpus.end()) throw Error("{}: no rows of GPU '{}'", options.data, options.without);
  const auto gpu = static_cast<uint8_t>(at - data.gpus.begin());
  KernelFits fits;
  Dataset rest{data.gpus, data.traits, {}, {}};
  for (const FitGroup& group : data.groups) {
    FitGroup part = group;
    std::erase_if(part.rows, [&](const FitRow& row) { return row.gpu == gpu; });
    if (part.rows.size() >= 20) rest.groups.push_back(std::move(part));
  }
  for (FitGroup& pool : pooled_groups(rest)) rest.groups.push_back(std::move(pool));
  for (const FitGroup& group : rest.groups) {
    const auto rows = pick(group, [](const FitRow&) { return true; });
    KernelFit fit = describe(group, data);
    fit.params = fit_params(group.family, rows, data.traits, options.effort);
    fits.push_back(std::move(fit));
  }
  std::map<std::string, Score> totals, by_group;
  for (const FitGroup& group : data.groups) {
    KernelKey key{group.family, group.stack, group.dtype, group.kernel, group.arch, 0};
    for (const FitRow& row : group.rows) {
      if (row.gpu != gpu) continue;
      if (!group.head_dims.empty()) key.head_dim = std::get<AttentionCall>(row.call).head_dim;
      const KernelMatch match = find_fit(fits, key);
      if (!match.fit) continue;
      const double predicted = kernel_seconds(*match.fit, row.call, data.traits[gpu]);
      const std::string name(family_name(group.family));
      totals[name].add(predicted, row.seconds);
      by_group[fmt::format("{} {} {} {} <- {} {} ({:.1f})", name, group.stack, group.dtype,
                           group.kernel.substr(0, 16), match.fit->stack, arch_name(match.fit->arch),
                           match.distance)]
          .add(predicted, row.seconds);
    }
  }
  fmt::print("{} left out\n", options.without);
  print_scores(by_group);
  print_scores(totals);
}

// The rest of each stack file is kept; only its "calibration" is replaced.
void write_stacks(KernelFits fits, const Options& options) {
  // NCCL belongs to every stack.
  std::vector<KernelFit> nccl;
  std::erase_if(fits, [&](const KernelFit& fit) {
    if (fit.stack == "nccl") nccl.push_back(fit);
    return fit.stack == "nccl";
  });
  for (const std::string stack : {"vllm", "sglang", "trtllm"}) {
    const std::string path = fmt::format("{}/{}.json", options.write, stack);
    Json file = Json::parse(read_file(path, kMaxJsonBytes));
    // With --only, the other families stay as they are.
    KernelFits own;
    if (!options.only.empty()) {
      read_fits(nlohmann::json::parse(file.dump()), path, own);
      std::erase_if(own,
                    [&](const KernelFit& fit) { return family_name(fit.family) == options.only; });
    }
    for (const KernelFit& fit : fits)
      if (fit.stack == stack) own.push_back(fit);
    for (KernelFit fit : nccl) {
      fit.stack = stack;
      own.push_back(fit);
    }
    std::stable_sort(own.begin(), own.end(),
                     [](const KernelFit& a, const KernelFit& b) { return a.family < b.family; });
    file["calibration"] = "@";
    std::string text = file.dump(2);
    const std::string mark = "\"@\"";
    text.replace(text.find(mark), mark.size(), write_fits(own, stack));
    write_file(path, text + "\n");
    fmt::print("wrote {} ({} fits)\n", path, own.size());
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Fits the calibrated stacks to measured kernels");
  app.add_option("data", options.data, "folder in the silicon layout")->required();
  app.add_option("--write", options.write, "folder of the stack files to update");
  app.add_option("--without", options.without, "GPU to leave out of the fit and score");
  app.add_option("--only", options.only, "one kernel family");
  app.add_option("--evaluations", options.effort.evaluations, "of the objective, per fit");
  app.add_option("--rows", options.effort.rows, "rows used per fit");
  bool endpoints = false;
  app.add_flag("--endpoints", endpoints,
               "fit the host's share of each stack to measured endpoints");
  CLI11_PARSE(app, argc, argv);
  if (endpoints) {
    fit_endpoints(options.data);
    return 0;
  }
  Dataset data = load_dataset(options.data, options.only);
  if (!options.without.empty()) {
    leave_out(data, options);
  } else {
    data.pools = pooled_groups(data);
    const KernelFits fits = cross_fit(data, options);
    if (!options.write.empty()) write_stacks(fits, options);
  }
  return 0;
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  try {
    return ridge::run(argc, argv);
  } catch (const ridge::Error& error) {
    fmt::print(stderr, "ridge_fit: {}\n", error.what());
    return 2;
  }
}
