// ridge report: the page as one file, its numbers frozen, to attach to a ticket.
#include "serve/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "predict/observe.h"

namespace ridge {
namespace {

constexpr const char* kReportExamples = R"(Examples:
  ridge report -o report.html -m llama-3-70b -M 8xh100-sxm -b 32 -c 4096 --weights fp8
  ridge report -o slow.html -m llama-3-70b -M 8xh100-sxm -b 8 --observed 280tok/s --gpu-util 0.38
The file holds the whole page and needs neither Ridge nor a network. Machines and models by name.)";

struct ReportOptions {
  RequestOptions request;
  ObservedOptions seen;
  std::string file, target, compare;
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
  for (const ObservedOption& option : observed_options()) {
    if (!(o.seen.*option.value).empty()) config[option.name] = o.seen.*option.value;
  }
  const bool observed = !o.seen.observed.empty() || !o.seen.itl.empty();
  if (observed && config.contains("batch")) config["seen-batch"] = config["batch"];
  config["target"] = o.target;
  if (!o.compare.empty()) config["compare"] = o.compare;
  return config;
}

}  // namespace

void add_report_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<ReportOptions>();
  o->target = "50ms";
  CLI::App* command =
      app.add_subcommand("report", "The page as one standalone file, to attach to a ticket");
  command->add_option("-o,--file", o->file, "HTML file to write")->required();
  add_request_options(*command, o->request, EndpointOptions::left_out);
  for (const ObservedOption& option : observed_options()) {
    if (std::string_view(option.name) == "batch") continue;  // --batch is both
    command->add_option(std::string("--") + option.name, o->seen.*option.value, option.help)
        ->group("What you see");
  }
  command->add_option("--target", o->target, "Latency target, time per token")
      ->capture_default_str();
  command->add_option("--compare", o->compare, "Machines to compare with, comma-separated");
  command->footer(kReportExamples);
  command->callback([o, &global] {
    check_writable(o->file);
    const std::string made = fmt::format("{:%Y-%m-%d %H:%M} UTC, ridge {}",
                                         fmt::gmtime(std::time(nullptr)), RIDGE_VERSION);
    const std::string html = report_html(config_of(*o), made);
    write_file(o->file, html);
    if (global.json) {
      fmt::print("{}\n", Json{{"path", o->file}, {"bytes", html.size()}}.dump(2));
    } else {
      fmt::print("wrote {} ({})\n", o->file, pretty_bytes(double(html.size())));
    }
  });
}

}  // namespace ridge
