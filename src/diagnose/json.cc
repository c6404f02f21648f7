#include "diagnose/json.h"

#include <cmath>

#include "predict/json.h"

namespace ridge {
namespace {

Json wall_json(const std::optional<Wall>& wall) {
  return wall ? Json(wall_name(*wall)) : Json(nullptr);
}

Json number_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json observed_json(const Diagnosis& d) {
  Json json = Json::object();
  json["step_s"] = number_json(d.run.step_s);
  json["batch"] = number_json(d.run.batch);
  json["batch_from"] = d.run.batch_from;
  json["tokens_per_step"] = d.run.tokens_per_step;
  json["prompts_s"] = d.run.prompts_s;
  if (d.run.expected) {
    const Expected& e = *d.run.expected;
    json["effective_batch"] = number_json(e.effective_batch);
    json["share_of_roof"] = e.share_of_roof;
    json["over_expected"] = e.over_expected;
    json["mbu"] = e.mbu;
    json["mfu"] = e.mfu;
  }
  Json& values = json["quantities"] = Json::array();
  for (const QuantityInfo& about : all_quantities()) {
    const Observed* from = d.seen.source[static_cast<size_t>(about.quantity)];
    if (!from) continue;
    values.push_back({{"name", about.name},
                      {"value", from->value},
                      {"trust", trust_name(from->trust)},
                      {"origin", from->origin},
                      {"file", from->file}});
    if (from->window_s > 0) values.back()["window_s"] = from->window_s;
  }
  return json;
}

Json expected_json(const Diagnosis& d) {
  if (!d.run.expected) return nullptr;
  const Expected& e = *d.run.expected;
  const StepEstimate& step = d.run.predicted();
  const Ceilings roof = make_ceilings(e.request.system, e.request.plan, e.request.stack);
  const double peak = roof.peak[static_cast<size_t>(e.prediction.math)];
  return {{"model", e.request.model->name},
          {"machine", e.request.system.name()},
          {"stack", e.request.stack.name},
          {"phase", d.run.phase == Phase::decode ? "decode" : "prefill"},
          {"roof_s", step.roof_s},
          {"low_s", step.low_s},
          {"expected_s", step.expected_s},
          {"high_s", step.high_s},
          {"flops", step.flops},
          {"bytes", step.bytes},
          {"peak", peak > 0 ? Json(peak) : Json(nullptr)},
          {"bandwidth", roof.bandwidth},
          {"memory", roof.memory_name},
          {"tokens_per_s", e.prediction.tokens_per_s},
          {"ttft_s", e.prediction.ttft_s()},
          {"wall", wall_name(step.wall)},
          {"useful_batch", e.useful_batch},
          {"useful_tokens_per_s", e.useful_tokens_per_s}};
}

Json profile_json(const Diagnosis& d) {
  const KernelProfile& p = *d.seen.profile;
  Json gaps = Json::object();
  for (size_t i = 0; i < kGapCauses; ++i) {
    gaps[gap_cause_name(static_cast<GapCause>(i))] = p.gap_s[i];
  }
  Json operators = Json::array();
  for (const OperatorTime& row : d.operators) {
    operators.push_back({{"family", kernel_family_name(row.family)},
                         {"seconds", row.seconds},
                         {"launches", row.launches},
                         {"expected_s", row.expected_s > 0 ? Json(row.expected_s) : Json(nullptr)},
                         {"flops", row.flops > 0 ? Json(row.flops) : Json(nullptr)},
                         {"bytes", row.bytes > 0 ? Json(row.bytes) : Json(nullptr)}});
  }
  Json kernels = Json::array();
  for (const KernelTime& k : p.kernels) {
    Json json = {{"name", k.name},
                 {"family", kernel_family_name(k.family)},
                 {"seconds", k.seconds},
                 {"launches", k.launches}};
    const auto put = [&](const char* name, const std::optional<double>& value) {
      if (value) json[name] = *value;
    };
    put("dram_bytes", k.dram_bytes);
    put("flops", k.flops);
    put("memory_share", k.memory_share);
    put("dram_share", k.dram_share);
    put("compute_share", k.compute_share);
    put("tensor_share", k.tensor_share);
    kernels.push_back(std::move(json));
  }
  return {{"tool", p.tool},
          {"devices", p.devices},
          {"wall_s", p.wall_s},
          {"busy_s", p.busy_s},
          {"kernel_s", p.kernel_s},
          {"launches", p.launches},
          {"graph_launches", p.graph_launches},
          {"median_kernel_s", p.median_kernel_s},
          {"median_gap_s", p.median_gap_s},
          {"gaps_s", std::move(gaps)},
          {"exposed_collective_s", p.exposed_collective_s},
          {"steps", p.steps},
          {"operators", std::move(operators)},
          {"kernels", std::move(kernels)}};
}

Json files_json(const Diagnosis& d) {
  Json files = Json::array();
  for (const EvidenceFile& file : d.seen.evidence.files) {
    files.push_back({{"path", file.path},
                     {"kind", file.kind},
                     {"window", file.window},
                     {"engine", file.setup.engine},
                     {"model", file.setup.model},
                     {"device", file.setup.device},
                     {"observed", file.observed.size()},
                     {"notes", file.notes},
                     {"unknown", file.unknown}});
  }
  return files;
}

Json levers_json(const Diagnosis& d) {
  Json levers = Json::array();
  for (const Lever& l : d.levers) {
    const auto known = [&](double value) { return l.predicted ? Json(value) : Json(nullptr); };
    levers.push_back({{"name", l.name},
                      {"setting", l.setting},
                      {"targeted", l.targeted},
                      {"gain", known(l.gain)},
                      {"ttft_gain", known(l.ttft_gain)},
                      {"tpot_s", known(l.tpot_s)},
                      {"next_wall", l.predicted ? Json(wall_name(l.next_wall)) : Json(nullptr)},
                      {"note", l.note}});
  }
  return levers;
}

}  // namespace

Json to_json(const Diagnosis& d) {
  Json json;
  json["verdict"] = verdict_name(d.verdict);
  json["healthy"] = d.healthy;
  json["wall"] = wall_json(d.wall);
  json["next_wall"] = wall_json(d.next_wall);
  json["confidence"] = std::round(d.confidence * 100) / 100;
  json["runner_up"] = nullptr;
  if (d.runner_up) {
    json["runner_up"] = verdict_name(*d.runner_up);
    json["runner_up_confidence"] = std::round(d.runner_up_confidence * 100) / 100;
  }
  json["sentence"] = d.sentence;
  json["observed"] = observed_json(d);
  json["expected"] = expected_json(d);
  Json& evidence = json["evidence"] = Json::array();
  for (const Finding& f : d.findings) {
    evidence.push_back({{"bearing", f.bearing == Bearing::supports ? "supports" : "contradicts"},
                        {"text", f.text}});
  }
  json["missing"] = d.missing;
  json["levers"] = levers_json(d);
  json["files"] = files_json(d);
  json["identified"] = d.taken;
  if (d.seen.profile) json["profile"] = profile_json(d);
  if (d.run.expected) {
    json["prediction"] = to_json(d.run.expected->request, d.run.expected->prediction);
  }
  return json;
}

}  // namespace ridge
