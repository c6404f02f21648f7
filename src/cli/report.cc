// ridge report: the page as one file, its numbers frozen, to attach to a ticket.
#include "page/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/explain_text.h"
#include "cli/options.h"
#include "diagnose/json.h"
#include "lab/lab_results.h"
#include "page/lab_service.h"

namespace ridge {
namespace {

constexpr const char* kReportExamples = R"(Examples:
  ridge report -o report.html -m llama-3-70b -M 8xh100-sxm -b 32 -c 4096 --weights fp8
  ridge report -o slow.html --explain metrics.prom dcgm.prom
  ridge report -o lab.html --lab             with the results of the last ridge lab all
  ridge report -o slow.html -m llama-3-70b -M 8xh100-sxm -b 8 --observed 280tok/s --gpu-util 0.38
The file holds the whole page and needs neither Ridge nor a network. Machines and models by name.)";

constexpr const char* kLastLabRun = "last";  // --lab without a file

struct ReportOptions {
  RequestOptions request;
  ExplainOptions explain;  // files and numbers that were seen
  std::string file, target, compare, lab;
};

// Only options that were given: the page shows the others with their defaults.
ApiOptions config_of(const ReportOptions& o) {
  ApiOptions config;
  const RequestOptions defaults;
  for (const RequestOption& option : request_options()) {
    const std::string name = option.name;
    if (option.flag) {
      if (o.request.*option.flag) config[name] = "true";
    } else if (o.request.*option.value != defaults.*option.value || name == "model" ||
               name == "machine") {
      config[name] = o.request.*option.value;
    }
  }
  for (const QuantityInfo& about : all_quantities()) {
    const std::string& text = o.explain.stated[about.quantity];
    if (text.empty()) continue;
    // A prediction assumes a batch and an output as well; what was seen goes by a name of its own.
    const bool both = about.quantity == Quantity::batch || about.quantity == Quantity::output;
    config[both ? fmt::format("seen-{}", about.option) : about.option] = text;
  }
  const bool typed = o.explain.files.empty() && !o.explain.stated.empty();
  if (typed && config.contains("batch")) config["seen-batch"] = config["batch"];
  config["target"] = o.target;
  if (!o.compare.empty()) config["compare"] = o.compare;
  return config;
}

// Results of the file, or of the last whole run.
Json lab_results(const std::string& file) {
  const std::string path = file == kLastLabRun ? kept_results_path() : file;
  if (path.empty()) throw Error("there are no results yet: run `ridge lab all`, or --lab FILE");
  return lab_view(read_results(path));
}

// The diagnosis of the files. What they say about model and machine becomes the report's, where the
// options do not say otherwise.
Json explain_files(ReportOptions& o, const CLI::App& command) {
  o.explain.request = o.request;
  if (command.count("--model") == 0) o.explain.request.model = kAuto;
  if (command.count("--machine") == 0) o.explain.request.machine = kAuto;
  if (o.request.batch != kAuto) o.explain.stated[Quantity::batch] = o.request.batch;
  o.explain.request.batch = kAuto;
  const Diagnosis d = explain(o.explain);
  if (d.run.expected) {
    const Request& r = d.run.expected->request;
    o.request.model = r.model->name;
    o.request.machine = r.system.name();
    if (d.run.batch) o.request.batch = fmt::format("{:.0f}", *d.run.batch);
  } else if (!d.machine.empty()) {
    o.request.machine = d.machine;
  }
  return to_json(d);
}

}  // namespace

void add_report_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<ReportOptions>();
  o->target = "50ms";
  CLI::App* command =
      app.add_subcommand("report", "The page as one standalone file, to attach to a ticket");
  command->add_option("-o,--file", o->file, "HTML file to write")->required();
  add_request_options(*command, o->request, EndpointOptions::left_out);
  add_stated_options(*command, o->explain.stated, false);
  command->add_option("--explain", o->explain.files,
                      "Evidence to explain: files as ridge explain reads");
  add_explain_files(*command, o->explain);
  command->add_option("--target", o->target, "Latency target, time per token")
      ->capture_default_str();
  command->add_option("--compare", o->compare, "Machines to compare with, comma-separated");
  command
      ->add_option("--lab", o->lab, "Results of ridge lab --json (no file: the last ridge lab all)")
      ->expected(0, 1)
      ->default_str(kLastLabRun);
  command->footer(kReportExamples);
  command->callback([o, command, &global] {
    check_writable(o->file);
    std::optional<Json> explanation;
    if (!o->explain.files.empty()) explanation = explain_files(*o, *command);
    std::optional<Json> lab;
    if (command->count("--lab") > 0) lab = lab_results(o->lab.empty() ? kLastLabRun : o->lab);
    const std::string made = fmt::format("{:%Y-%m-%d %H:%M} UTC, ridge {}",
                                         fmt::gmtime(std::time(nullptr)), RIDGE_VERSION);
    const std::string html = report_html(config_of(*o), made, explanation, lab);
    write_file(o->file, html);
    if (global.json) {
      fmt::print("{}\n", Json{{"path", o->file}, {"bytes", html.size()}}.dump(2));
    } else {
      fmt::print("wrote {} ({})\n", o->file, pretty_bytes(double(html.size())));
    }
  });
}

}  // namespace ridge
