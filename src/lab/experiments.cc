#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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
    std::nth_element(errors.begin(), errors.begin() + long(errors.size() / 2), errors.end());
    agreement.median_error = errors[errors.size() / 2];
  }
  return agreement;
}

std::string agreement_text(const Agreement& a) {
  std::string text = fmt::format("{} of {} points inside their band", a.inside, a.points);
  if (a.points > 0) {
    text += fmt::format(" ({}), median error {}", pretty_percent(a.share()),
                        pretty_percent(a.median_error));
  }
  if (a.left_out > 0) text += fmt::format("; {} doubtful points left out", a.left_out);
  return text;
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

Plot lab_plot(const Experiment& experiment, const LabResult& result) {
  Plot plot;
  plot.title = experiment.question;
  plot.x = result.x;
  plot.y = result.y;
  for (const LabSeries& series : result.series) {
    Series line;
    line.label = series.name + ", predicted";
    line.dashed = true;
    Series dots, circles;
    dots.label = series.name;
    circles.label = series.name + ", doubtful";
    dots.points = circles.points = circles.hollow = true;
    line.colour = dots.colour = circles.colour = int(&series - result.series.data());
    for (const LabPoint& point : series.points) {
      if (point.predicted()) {
        line.x.push_back(point.x);
        line.y.push_back(point.band.expected);
      }
      Series& to = point.doubtful() ? circles : dots;
      to.x.push_back(point.x);
      to.y.push_back(point.measured);
    }
    for (Series* part : {&line, &dots, &circles}) {
      if (!part->x.empty()) plot.series.push_back(std::move(*part));
    }
  }
  return plot;
}

}  // namespace ridge
