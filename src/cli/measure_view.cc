#include "cli/measure_view.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/plot.h"
#include "base/text.h"
#include "base/units.h"
#include "machine/atlas.h"
#include "machine/user_folder.h"
#include "measure/band.h"

namespace ridge {
namespace {

constexpr int kPlotWidth = 900, kPlotHeight = 480;

std::string painted(ReadingVerdict verdict) {
  const Colour colour = verdict == ReadingVerdict::good          ? Colour::green
                        : verdict == ReadingVerdict::slow        ? Colour::yellow
                        : verdict == ReadingVerdict::implausible ? Colour::red
                                                                 : Colour::none;
  return paint(colour, reading_verdict_name(verdict));
}

// The head of the id: L1, DRAM, peak, launch. A rule separates them in the table.
std::string group_of(const Reading& reading) { return reading.id.substr(0, reading.id.find('.')); }

// Groups in the order of their first reading.
std::vector<Reading> grouped(const std::vector<Reading>& readings) {
  std::vector<std::string> order;
  for (const Reading& reading : readings) {
    if (std::find(order.begin(), order.end(), group_of(reading)) == order.end()) {
      order.push_back(group_of(reading));
    }
  }
  std::vector<Reading> sorted;
  for (const std::string& group : order) {
    for (const Reading& reading : readings) {
      if (group_of(reading) == group) sorted.push_back(reading);
    }
  }
  return sorted;
}

Plot curves_plot(const Report& report, Dimension quantity, const char* title, const char* unit) {
  Plot plot;
  plot.title = fmt::format("{}: {}", report.base.title, title);
  plot.x.label = "working set, bytes";
  plot.y.label = unit;
  for (const Curve& curve : report.curves) {
    if (curve.quantity != quantity) continue;
    plot.series.push_back({curve.label, curve.x, curve.y, false});
  }
  return plot;
}

Plot roofline_plot(const Report& report) {
  const Machine machine = overlay(report.base, measured_machine(report, ""));
  Plot plot;
  plot.title = fmt::format("{}: measured roofline", report.base.title);
  plot.x = {"operations per byte", true, 0.01, 10000};
  plot.y.label = "operations/s";
  double top = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (!report.find("clock") || !machine.peak[i]) continue;
    top = std::max(top, *machine.peak[i]);
    plot.series.push_back({std::string(dtype_name(static_cast<DType>(i))),
                           {plot.x.low, plot.x.high},
                           {*machine.peak[i], *machine.peak[i]},
                           true});
  }
  if (top <= 0) return plot;
  for (const Level& level : machine.levels) {
    if (!level.read_bandwidth || level.scope >= Scope::host) continue;
    const double ridge = std::min(top / *level.read_bandwidth, plot.x.high);
    plot.series.push_back({level.name,
                           {plot.x.low, ridge},
                           {plot.x.low * *level.read_bandwidth, ridge * *level.read_bandwidth},
                           false});
  }
  return plot;
}

}  // namespace

void print_report(const Report& report) {
  fmt::print("{}  {}\n\n", paint(Colour::bold, report.base.name), report.base.title);
  Table table({"reading", "measured", "p10-p90", "of", "share", "typical", "verdict"});
  std::string group;
  for (const Reading& reading : grouped(report.readings)) {
    const Judgement judgement = judge(reading, report.base);
    if (!group.empty() && group != group_of(reading)) table.rule();
    group = group_of(reading);
    const bool held = judgement.reference.has_value();
    table.add(
        {reading.id + (reading.path.empty() ? "" : " *"),
         quantity_text(reading.quantity, reading.value),
         reading.samples > 1 ? fmt::format("{:.1f} %", 100 * reading.spread()) : "",
         held ? quantity_text(reading.quantity, *judgement.reference) : "",
         held ? pretty_percent(reading.value / *judgement.reference) : "",
         held ? fmt::format("{:.0f}-{:.0f} %", 100 * judgement.typical_low,
                            100 * judgement.typical_high)
              : "",
         painted(judgement.verdict) + (reading.doubt.empty() ? "" : paint(Colour::yellow, " ?"))});
  }
  fmt::print("{}", table.text());
  fmt::print("* goes into the machine file.  ? in doubt, see below.\n");
  for (const Reading& reading : report.readings) {
    const Judgement judgement = judge(reading, report.base);
    if (judgement.verdict == ReadingVerdict::implausible) {
      fmt::print("{}: {} is {}; left out of the machine file\n", paint(Colour::red, reading.id),
                 quantity_text(reading.quantity, reading.value), judgement.reason);
    }
    if (!reading.doubt.empty()) fmt::print("{}: {}\n", reading.id, reading.doubt);
  }
  for (const std::string& line : contradictions(report)) fmt::print("{}\n", line);
  if (!report.conditions.empty()) fmt::print("\nConditions\n");
  for (const std::string& line : report.conditions) fmt::print("  {}\n", line);
  if (!report.missing.empty()) fmt::print("\nNot measured\n");
  for (const std::string& line : report.missing) fmt::print("  {}\n", line);
}

void print_drift(const std::vector<Drift>& drifts, double tolerance) {
  Table table({"reading", "before", "now", "change", ""});
  int fallen = 0;
  for (const Drift& drift : drifts) {
    fallen += drift.fell;
    table.add({drift.id, quantity_text(drift.quantity, drift.before),
               quantity_text(drift.quantity, drift.after),
               fmt::format("{:+.1f} %", 100 * drift.change),
               drift.fell ? paint(Colour::red, "fell") : ""});
  }
  fmt::print("\n{}", table.text());
  fmt::print("{} of {} ceilings fell by more than {:g} %.\n", fallen, drifts.size(),
             100 * tolerance);
}

nlohmann::json drift_json(const std::vector<Drift>& drifts) {
  nlohmann::json list = nlohmann::json::array();
  for (const Drift& drift : drifts) {
    list.push_back({{"id", drift.id},
                    {"before", drift.before},
                    {"after", drift.after},
                    {"change", drift.change},
                    {"fell", drift.fell}});
  }
  return list;
}

std::string measured_today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

std::string measured_file(const std::string& name) {
  std::string folder = user_folder();
  if (folder.empty()) {
    throw Error("neither XDG_CONFIG_HOME nor HOME is set: say where to write with -o FILE");
  }
  folder += "/machines";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error("{}: {} (write elsewhere with -o FILE)", folder, error.message());
  return folder + "/" + name + ".json";
}

std::string report_svg(const Report& report) {
  const Plot plots[] = {
      curves_plot(report, Dimension::bandwidth, "bandwidth over working set", "bytes/s"),
      curves_plot(report, Dimension::time, "latency over working set", "s"), roofline_plot(report)};
  std::string inner;
  int height = 0;
  for (const Plot& plot : plots) {
    if (plot.series.empty()) continue;
    std::string drawn = draw_svg(plot, kPlotWidth, kPlotHeight);
    const size_t at = drawn.find("<svg ");
    if (at == std::string::npos) continue;
    drawn.insert(at + 5, fmt::format("y=\"{}\" ", height));
    inner += drawn.substr(at);
    height += kPlotHeight;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n{2}</svg>\n",
      kPlotWidth, std::max(height, 1), inner);
}

}  // namespace ridge
