// The page of `ridge lab -o FILE`: every experiment with its picture and its table.
#include <fmt/format.h>

#include "base/units.h"
#include "lab/lab_figure.h"
#include "lab/lab_json.h"

namespace ridge {
namespace {

constexpr const char* kLabStyle = R"(<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1f2328; background: #ffffff; }
svg { max-width: 100%; height: auto; } h2 { margin-top: 3rem; } .claim { font-style: italic; }
.claim span { opacity: 0.7; } .confirmed b { color: #1a7f37; } .refuted b { color: #cf222e; }
.open b, .interrupted { color: #9a6700; } code { background: #8883; padding: 0 0.3em; }
table { border-collapse: collapse; font-size: 14px; } th, td { padding: 0.1rem 0.7rem; text-align: left; }
th { border-bottom: 1px solid #8888; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.outside { color: #cf222e; } details { overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117; }
.confirmed b { color: #3fb950; } .refuted b, td.outside { color: #f85149; } .open b, .interrupted { color: #d29922; } }
</style>)";

std::string row_html(const LabSeries& series, const LabPoint& p) {
  const std::string at = p.label.empty() ? pretty_number(p.x) : p.label;
  std::string band, predicted, error, where;
  if (p.predicted()) {
    predicted = pretty_number(p.band.expected);
    band = fmt::format("{} - {}", pretty_number(p.band.low), pretty_number(p.band.high));
    error = pretty_percent(p.error());
    where = p.inside() ? "inside" : "outside";
  }
  if (p.doubtful()) where = "doubtful: " + p.doubt;
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}"
      "</td><td class=\"n\">{}</td><td{}>{}</td></tr>\n",
      escape_html(at), escape_html(series.name), predicted, band, pretty_number(p.measured), error,
      where == "outside" ? " class=\"outside\"" : "", escape_html(where));
}

std::string table_html(const LabResult& result) {
  std::string rows;
  for (const LabSeries& series : result.series) {
    for (const LabPoint& point : series.points) rows += row_html(series, point);
  }
  if (rows.empty()) return "";
  return fmt::format(
      "<details><summary>The points as a table</summary><table><thead><tr><th>{}</th>"
      "<th>series</th><th class=\"n\">predicted</th><th class=\"n\">band</th><th class=\"n\">"
      "measured, {}</th><th class=\"n\">error</th><th></th></tr></thead><tbody>\n{}</tbody></table>"
      "</details>\n",
      escape_html(result.x.label), escape_html(result.y.label), rows);
}

std::string section_html(const LabRun& run) {
  const Experiment& e = *run.experiment;
  std::string html = fmt::format(
      "<section id=\"{0}\"><h2>{1}</h2>\n<p class=\"claim\">{2} <span>({3})</span></p>\n"
      "<p class=\"{4}\"><b>{4}</b>: {5}</p>\n",
      e.name, escape_html(e.question), escape_html(e.claim), escape_html(e.source),
      lab_verdict_name(run.judgement.verdict), escape_html(lab_answer(run)));
  html += lab_svg(e, run.result) + table_html(run.result) + "<ul>";
  const Agreement agreement = agreement_of({&run.result, 1});
  if (agreement.points + agreement.left_out > 0) {
    html += fmt::format("<li>{}.</li>", escape_html(agreement_text(agreement)));
  }
  for (const LabCheck& check : run.result.checks) {
    html += fmt::format("<li>{}: {}</li>", escape_html(check.what),
                        check.holds ? "holds" : "does not hold");
  }
  for (const std::string& note : run.result.notes) {
    html += fmt::format("<li>{}</li>", escape_html(note));
  }
  html += fmt::format("<li>Announced to hold at most {}{}.</li>", pretty_bytes(run.announced_bytes),
                      run.peak_bytes > 0 ? "; held " + pretty_bytes(run.peak_bytes) : "");
  return html +
         fmt::format("</ul><p>Run it: <code>{}</code>. Next: <code>{}</code></p></section>\n",
                     lab_command(e, run.device), escape_html(e.next));
}

}  // namespace

std::string lab_html(const LabReport& report) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Ridge lab</title>\n{}</head><body>\n<h1>The lab</h1>\n"
      "<p>{}, {}{}. {}. Predictions rest on {}. Shaded: the band of each prediction, fixed before "
      "its point was measured. Dashed: the predicted value. Hollow marks: doubtful points.</p>\n",
      kLabStyle, escape_html(report.device), escape_html(report.date),
      report.quick ? ", quick" : "", escape_html(agreement_text(agreement_of(report))),
      escape_html(report.ceilings));
  if (report.interrupted) {
    html +=
        "<p class=\"interrupted\">The run was interrupted: experiments that did not end are "
        "missing.</p>\n";
  }
  for (const std::string& line : report.conditions) {
    html += fmt::format("<p>Disturbed: {}</p>\n", escape_html(line));
  }
  for (const LabRun& run : report.runs) html += section_html(run);
  return html + "</body></html>\n";
}

}  // namespace ridge
