#include "lab/lab_json.h"

#include <fmt/format.h>

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
  }
  if (!point.doubt.empty()) json["doubt"] = point.doubt;
  return json;
}

Json agreement_json(const Agreement& agreement) {
  return {{"points", agreement.points},
          {"inside", agreement.inside},
          {"left_out", agreement.left_out},
          {"share", agreement.share()},
          {"median_error", agreement.median_error}};
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string section_html(const LabRun& run) {
  const Experiment& e = *run.experiment;
  std::string html = fmt::format(
      "<section id=\"{0}\"><h2>{1}</h2>\n<p class=\"claim\">{2} <span>({3})</span></p>\n"
      "<p class=\"{4}\"><b>{4}</b>: {5}</p>\n",
      e.name, escape_html(e.question), escape_html(e.claim), escape_html(e.source),
      lab_verdict_name(run.judgement.verdict), escape_html(lab_answer(run)));
  const Plot plot = lab_plot(e, run.result);
  if (!plot.series.empty()) html += draw_svg(plot);
  html += "<ul>";
  for (const LabCheck& check : run.result.checks) {
    html +=
        fmt::format("<li>{}: {}</li>", escape_html(check.what), check.holds ? "holds" : "FAILS");
  }
  for (const std::string& note : run.result.notes) {
    html += fmt::format("<li>{}</li>", escape_html(note));
  }
  return html + fmt::format("</ul><p>Next: {}. Command: <code>ridge lab {}</code></p></section>\n",
                            escape_html(e.next), e.name);
}

constexpr const char* kLabStyle = R"(<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1f2328; background: #ffffff; }
svg { max-width: 100%; height: auto; } h2 { margin-top: 3rem; } .claim { font-style: italic; }
.claim span { opacity: 0.7; } .confirmed b { color: #1a7f37; } .refuted b { color: #cf222e; }
.open b { color: #9a6700; } code { background: #8883; padding: 0 0.3em; }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117; } }
</style>)";

}  // namespace

Json to_json(const Experiment& e) {
  static constexpr const char* kTopics[] = {"machine", "model", "kernels", "formats", "serving"};
  return {{"name", e.name},
          {"topic", kTopics[int(e.topic)]},
          {"question", e.question},
          {"claim", e.claim},
          {"source", e.source},
          {"next", e.next},
          {"command", fmt::format("ridge lab {}", e.name)},
          {"cpu", e.on_cpu},
          {"cuda", e.on_cuda},
          {"about_s", e.seconds}};
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
  Json json = to_json(*run.experiment);
  json["verdict"] = lab_verdict_name(run.judgement.verdict);
  if (!run.judgement.reason.empty()) json["reason"] = run.judgement.reason;
  json["sentence"] = run.result.sentence;
  json["x"] = {{"label", run.result.x.label}, {"log", run.result.x.log}};
  json["y"] = {{"label", run.result.y.label}, {"log", run.result.y.log}};
  json["series"] = std::move(series);
  json["checks"] = std::move(checks);
  json["notes"] = run.result.notes;
  json["agreement"] = agreement_json(agreement_of({&run.result, 1}));
  json["seconds"] = run.seconds;
  return json;
}

Json to_json(const LabReport& report) {
  Json runs = Json::array();
  for (const LabRun& run : report.runs) runs.push_back(to_json(run));
  return {{"device", report.device},
          {"ceilings", report.ceilings},
          {"date", report.date},
          {"seconds", seconds_of(report)},
          {"quick", report.quick},
          {"conditions", report.conditions},
          {"agreement", agreement_json(agreement_of(report))},
          {"experiments", std::move(runs)}};
}

std::string lab_html(const LabReport& report) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Ridge lab</title>\n{}</head><body>\n<h1>The lab</h1>\n"
      "<p>{}, {}{}. {}. Bands were fixed before anything was measured; circles are doubtful "
      "points.</p>\n",
      kLabStyle, escape_html(report.device), escape_html(report.date),
      report.quick ? ", quick" : "", escape_html(agreement_text(agreement_of(report))));
  for (const std::string& line : report.conditions) {
    html += fmt::format("<p>Disturbed: {}</p>\n", escape_html(line));
  }
  for (const LabRun& run : report.runs) html += section_html(run);
  return html + "</body></html>\n";
}

}  // namespace ridge
