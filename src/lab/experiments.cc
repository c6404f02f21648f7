#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/experiment.h"

namespace ridge {
namespace {

// In the order in which they are told.
const Experiment* const kOrder[] = {
    &kHistoryExperiment,        &kRooflineExperiment,      &kLatencyHidingExperiment,
    &kAccessPatternsExperiment, &kStagesExperiment,        &kGpuUtilExperiment,
    &kDecodeExperiment,         &kPrefillDecodeExperiment, &kBatchingExperiment,
    &kContextExperiment,        &kKvCacheExperiment,       &kGqaExperiment,
    &kMemoryExperiment,         &kLaunchExperiment,        &kAttentionExperiment,
    &kFusionExperiment,         &kTilesExperiment,         &kFlopsNotTimeExperiment,
    &kRecomputeExperiment,      &kWeightsBitsExperiment,   &kKvBitsExperiment,
    &kPagesExperiment,          &kPrefixReuseExperiment,   &kContinuousBatchingExperiment,
    &kChunkedPrefillExperiment, &kSpeculationExperiment,   &kRanksExperiment,
    &kTensorParallelExperiment,
};

}  // namespace

std::string_view lab_verdict_name(LabVerdict verdict) {
  static constexpr std::string_view kNames[] = {"confirmed", "refuted", "open"};
  return kNames[static_cast<int>(verdict)];
}

std::span<const Experiment> experiments() {
  static const std::vector<Experiment> all = [] {
    std::vector<Experiment> list;
    for (const Experiment* experiment : kOrder) list.push_back(*experiment);
    return list;
  }();
  return all;
}

const Experiment& find_experiment(std::string_view name) {
  std::vector<std::string> names;
  for (const Experiment& experiment : experiments()) {
    if (name == experiment.name) return experiment;
    names.emplace_back(experiment.name);
  }
  const std::vector<std::string> near = nearest_names(name, names);
  throw Error("unknown experiment '{}'{}", name,
              near.empty() ? "; `ridge lab` lists them"
                           : fmt::format("; did you mean {}?", fmt::join(near, ", ")));
}

Agreement agreement_of(std::span<const LabResult> results) {
  Agreement agreement;
  std::vector<double> errors;
  for (const LabResult& result : results) {
    for (const LabSeries& series : result.series) {
      for (const LabPoint& point : series.points) {
        if (!point.predicted()) continue;
        if (point.doubtful()) {
          ++agreement.left_out;
          continue;
        }
        ++agreement.points;
        agreement.inside += point.inside() ? 1 : 0;
        errors.push_back(point.error());
      }
    }
  }
  if (!errors.empty()) {
    std::sort(errors.begin(), errors.end());
    agreement.median_error = errors[errors.size() / 2];
    agreement.p90_error = errors[size_t(std::lround(0.9 * double(errors.size() - 1)))];
  }
  return agreement;
}

std::string agreement_text(const Agreement& a) {
  std::string text = fmt::format("{} of {} points inside their band", a.inside, a.points);
  if (a.points > 0) {
    text += fmt::format(" ({}), error {} (median), {} (90th percentile)", pretty_percent(a.share()),
                        pretty_percent(a.median_error), pretty_percent(a.p90_error));
  }
  if (a.left_out > 0) {
    text += fmt::format("; {} doubtful points left out ({} with them as outside)", a.left_out,
                        pretty_percent(a.share_of_all()));
  }
  return text;
}

void decide(LabResult& result, bool holds, const LabPoints& points) {
  result.holds = holds;
  for (const LabPoint* point : points) {
    if (!point->doubtful() || !result.deciding_doubt.empty()) continue;
    result.deciding_doubt =
        fmt::format("the verdict rests on the point at {}, which is doubtful: {}",
                    point->label.empty() ? pretty_number(point->x) : point->label, point->doubt);
  }
}

LabPoints points_of(const LabSeries& series) {
  LabPoints points;
  for (const LabPoint& point : series.points) points.push_back(&point);
  return points;
}

LabPoints operator+(LabPoints a, const LabPoints& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

LabJudgement judge(const LabResult& result, bool quick) {
  for (const LabCheck& check : result.checks) {
    if (!check.holds) return {LabVerdict::refuted, "this does not hold: " + check.what};
  }
  if (!result.holds) return {LabVerdict::open, ""};
  const Agreement a = agreement_of({&result, 1});
  if (quick && a.points + a.left_out > 0) {
    return {LabVerdict::open, "--quick runs sizes that are too small to judge times by"};
  }
  if (!result.deciding_doubt.empty()) return {LabVerdict::open, result.deciding_doubt};
  if (a.left_out > a.points) {
    return {LabVerdict::open, fmt::format("{} of {} points are doubtful: the machine was disturbed",
                                          a.left_out, a.left_out + a.points)};
  }
  if (*result.holds && a.points > 0 && 2 * a.inside < a.points) {
    return {LabVerdict::open,
            fmt::format("the claim holds, but only {} of {} points lie inside their bands: the "
                        "prediction does not explain them",
                        a.inside, a.points)};
  }
  return {*result.holds ? LabVerdict::confirmed : LabVerdict::refuted, ""};
}

}  // namespace ridge
