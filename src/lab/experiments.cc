#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "lab/catalogue.h"
#include "lab/experiment.h"

namespace ridge {
namespace {

// In the order in which they are told.
const Experiment* const kOrder[] = {
    &kHistoryExperiment,
    &kRooflineExperiment,
    &kLatencyHidingExperiment,
    &kAccessPatternsExperiment,
    &kStagesExperiment,
    &kDecodeExperiment,
    &kPrefillDecodeExperiment,
    &kBatchingExperiment,
    &kContextExperiment,
    &kKvCacheExperiment,
    &kGqaExperiment,
    &kMemoryExperiment,
    &kLaunchExperiment,
    &kAttentionExperiment,
    &kFusionExperiment,
    &kTilesExperiment,
    &kFlopsNotTimeExperiment,
    &kRecomputeExperiment,
    &kWeightsBitsExperiment,
    &kKvBitsExperiment,
    &kPagesExperiment,
    &kPrefixReuseExperiment,
    &kContinuousBatchingExperiment,
    &kChunkedPrefillExperiment,
    &kSpeculationExperiment,
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
        ++agreement.points;
        agreement.inside += point.inside() ? 1 : 0;
        errors.push_back(point.error());
      }
    }
  }
  if (!errors.empty()) {
    std::nth_element(errors.begin(), errors.begin() + long(errors.size() / 2), errors.end());
    agreement.median_error = errors[errors.size() / 2];
  }
  return agreement;
}

Plot lab_plot(const Experiment& experiment, const LabResult& result) {
  Plot plot;
  plot.title = experiment.question;
  plot.x = result.x;
  plot.y = result.y;
  for (const LabSeries& series : result.series) {
    Series line;
    line.label = series.name + ", predicted";
    line.dashed = true;
    Series dots;
    dots.label = series.name;
    dots.points = true;
    for (const LabPoint& point : series.points) {
      if (point.predicted()) {
        line.x.push_back(point.x);
        line.y.push_back(point.band.expected);
      }
      dots.x.push_back(point.x);
      dots.y.push_back(point.measured);
    }
    if (!line.x.empty()) plot.series.push_back(std::move(line));
    plot.series.push_back(std::move(dots));
  }
  return plot;
}

}  // namespace ridge
