#include "lab/lab_json.h"

#include <vector>

#include "lab/lab_memory.h"

namespace ridge {
namespace {

Json point_json(const LabPoint& point) {
  Json json{{"x", point.x}, {"measured", point.measured}, {"spread", point.spread}};
  if (!point.label.empty()) json["label"] = point.label;
  if (point.predicted()) {
    json["predicted"] = point.band.expected;
    json["low"] = point.band.low;
    json["high"] = point.band.high;
    json["inside"] = point.inside();
    json["error"] = point.error();
  }
  if (!point.doubt.empty()) json["doubt"] = point.doubt;
  return json;
}

Json numbers_of(const Agreement& agreement) {
  return {{"points", agreement.points},
          {"inside", agreement.inside},
          {"left_out", agreement.left_out},
          {"share", agreement.share()},
          {"share_of_all", agreement.share_of_all()},
          {"median_error", agreement.median_error},
          {"p90_error", agreement.p90_error}};
}

double number_in(const Json& json, const char* field) {
  return json.contains(field) && json[field].is_number() ? json[field].get<double>() : 0;
}

// The points that point_json() wrote, as far as agreement needs them.
LabResult points_in(const Json& experiment) {
  LabResult result;
  if (!experiment.contains("series")) return result;
  for (const Json& series : experiment["series"]) {
    LabSeries& to = result.series.emplace_back();
    for (const Json& json : series["points"]) {
      LabPoint point;
      point.measured = number_in(json, "measured");
      point.band = {number_in(json, "low"), number_in(json, "predicted"), number_in(json, "high")};
      if (json.contains("doubt")) point.doubt = "doubtful";
      to.points.push_back(std::move(point));
    }
  }
  return result;
}

}  // namespace

Json agreement_json(const Json& experiments) {
  std::vector<LabResult> results;
  for (const Json& experiment : experiments) results.push_back(points_in(experiment));
  return numbers_of(agreement_of(results));
}

Json to_json(const Experiment& e, LabDevice device) {
  static constexpr const char* kTopics[] = {"machine", "model", "kernels", "formats", "serving"};
  return {{"name", e.name},
          {"topic", kTopics[int(e.topic)]},
          {"question", e.question},
          {"claim", e.claim},
          {"source", e.source},
          {"next", e.next},
          {"command", lab_command(e, device)},
          {"cpu", e.on_cpu != nullptr},
          {"cuda", e.on_cuda != nullptr},
          {"about_s", e.seconds},
          {"memory_bytes", announced_bytes(e, device, false)}};
}

Json to_json(const LabRun& run) {
  Json series = Json::array();
  for (const LabSeries& s : run.result.series) {
    Json points = Json::array();
    for (const LabPoint& point : s.points) points.push_back(point_json(point));
    series.push_back({{"name", s.name}, {"points", std::move(points)}});
  }
  Json checks = Json::array();
  for (const LabCheck& check : run.result.checks) {
    checks.push_back({{"what", check.what}, {"holds", check.holds}});
  }
  Json json = to_json(*run.experiment, run.device);
  json["memory_bytes"] = run.announced_bytes;
  if (run.peak_bytes > 0) json["peak_bytes"] = run.peak_bytes;
  json["verdict"] = lab_verdict_name(run.judgement.verdict);
  if (!run.judgement.reason.empty()) json["reason"] = run.judgement.reason;
  json["sentence"] = run.result.sentence;
  json["x"] = {{"label", run.result.x.label}, {"log", run.result.x.log}};
  if (run.result.categories) json["x"]["categories"] = true;
  json["y"] = {{"label", run.result.y.label}, {"log", run.result.y.log}};
  json["series"] = std::move(series);
  json["checks"] = std::move(checks);
  json["notes"] = run.result.notes;
  json["agreement"] = numbers_of(agreement_of({&run.result, 1}));
  json["seconds"] = run.seconds;
  return json;
}

Json to_json(const LabReport& report) {
  Json runs = Json::array();
  for (const LabRun& run : report.runs) runs.push_back(to_json(run));
  return {{"device", report.device},
          {"backend", lab_device_name(report.backend)},
          {"ceilings", report.ceilings},
          {"date", report.date},
          {"seconds", seconds_of(report)},
          {"quick", report.quick},
          {"interrupted", report.interrupted},
          {"conditions", report.conditions},
          {"agreement", numbers_of(agreement_of(report))},
          {"experiments", std::move(runs)}};
}

}  // namespace ridge
