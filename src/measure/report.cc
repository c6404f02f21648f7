// Reports as machines and as files.
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "machine/atlas.h"
#include "measure/band.h"
#include "measure/reading.h"

namespace ridge {
namespace {

using nlohmann::json;

constexpr const char* kQuantities[] = {"bandwidth", "rate", "time", "size", "clock"};

Level& level_of(Machine& machine, const Machine& base, const std::string& name) {
  for (Level& level : machine.levels) {
    if (level.name == name) return level;
  }
  Level level;
  level.name = name;
  if (const Level* known = base.level(name)) {
    level.scope = known->scope;
    level.instances = known->instances;
  } else if (name == "host" || name == "disk") {
    level.scope = Scope::host;
  } else if (name == "network") {
    level.scope = Scope::network;
  }
  machine.levels.push_back(level);
  return machine.levels.back();
}

Link& link_of(Machine& machine, const std::string& name) {
  for (Link& link : machine.links) {
    if (link.name == name) return link;
  }
  machine.links.emplace_back().name = name;
  return machine.links.back();
}

// The number behind a path; nullptr if the machine has no such number.
Maybe* number_of(Machine& machine, const Machine& base, const std::string& path) {
  const size_t first = path.find('.');
  const std::string head = path.substr(0, first);
  const std::string rest = first == std::string::npos ? "" : path.substr(first + 1);
  if (head == "clock") return &machine.clock;
  if (head == "power") return &machine.power;
  if (head == "peak") return &machine.peak[static_cast<int>(dtype_from_name(rest))];
  if (head == "sustained") return &machine.sustained[static_cast<int>(dtype_from_name(rest))];
  if (path == "launch.stream") return &machine.launch.stream;
  if (path == "launch.graph") return &machine.launch.graph;
  if (path == "launch.persistent") return &machine.launch.persistent;
  if (head == "links") {
    const size_t dot = rest.rfind('.');
    Link& link = link_of(machine, rest.substr(0, dot));
    return rest.substr(dot + 1) == "bandwidth" ? &link.bandwidth : &link.latency;
  }
  if (head == "levels") {
    const size_t dot = rest.find('.');
    Level& level = level_of(machine, base, rest.substr(0, dot));
    const std::string field = rest.substr(dot + 1);
    if (field == "read_bandwidth") return &level.read_bandwidth;
    if (field == "latency") return &level.latency;
    if (field == "capacity") return &level.capacity;
  }
  return nullptr;
}

json reading_to_json(const Reading& reading, const Judgement& judgement) {
  json item = {
      {"id", reading.id},       {"quantity", kQuantities[static_cast<int>(reading.quantity)]},
      {"value", reading.value}, {"p10", reading.low},
      {"p90", reading.high},    {"samples", reading.samples},
      {"how", reading.how},     {"verdict", reading_verdict_name(judgement.verdict)}};
  if (!reading.path.empty()) item["path"] = reading.path;
  if (!reading.doubt.empty()) item["doubt"] = reading.doubt;
  if (judgement.reference) item["reference"] = *judgement.reference;
  if (judgement.typical_high > 0) {
    item["typical"] = {judgement.typical_low, judgement.typical_high};
  }
  if (!judgement.reason.empty()) item["reason"] = judgement.reason;
  return item;
}

Dimension quantity_from_name(const std::string& name, const std::string& where) {
  for (size_t i = 0; i < std::size(kQuantities); ++i) {
    if (name == kQuantities[i]) return static_cast<Dimension>(i);
  }
  throw Error("{}: quantity must be one of {}, not \"{}\"", where, fmt::join(kQuantities, ", "),
              name);
}

Reading reading_from_json(const json& item, const std::string& where) {
  if (!item.is_object()) throw Error("{}: must be an object", where);
  constexpr double kAny = 1e30;
  Reading reading;
  reading.id = string_field(item, "id", where).value_or("");
  const auto value = number_field(item, "value", where, 0, kAny);
  if (reading.id.empty() || !value) throw Error("{}: needs an \"id\" and a \"value\"", where);
  reading.value = *value;
  reading.path = string_field(item, "path", where).value_or("");
  reading.quantity = quantity_from_name(string_field(item, "quantity", where).value_or(""), where);
  reading.low = number_field(item, "p10", where, 0, kAny).value_or(*value);
  reading.high = number_field(item, "p90", where, 0, kAny).value_or(*value);
  reading.samples = static_cast<int>(integer_field(item, "samples", where, 0, 1 << 30).value_or(1));
  reading.doubt = string_field(item, "doubt", where).value_or("");
  return reading;
}

Dimension quantity_of_path(const std::string& path) {
  if (path.ends_with("bandwidth")) return Dimension::bandwidth;
  if (path.ends_with("latency") || path.starts_with("launch.")) return Dimension::time;
  if (path.ends_with("capacity")) return Dimension::size;
  if (path == "clock") return Dimension::clock;
  return Dimension::rate;
}

}  // namespace

Machine measured_machine(const Report& report, const std::string& date) {
  Machine machine;
  machine.name = report.base.name;
  machine.title = report.base.title;
  machine.kind = report.base.kind;
  for (const Level& level : report.base.levels) level_of(machine, report.base, level.name);
  for (const Reading& reading : report.readings) {
    if (reading.path.empty() ||
        judge(reading, report.base).verdict == ReadingVerdict::implausible) {
      continue;
    }
    Maybe* number = number_of(machine, report.base, reading.path);
    if (!number) continue;
    *number = reading.value;
    const std::string source = reading.doubt.empty()
                                   ? "ridge measure: " + reading.how
                                   : "ridge measure: " + reading.how + "; " + reading.doubt;
    machine.provenance[reading.path] = {Origin::measured, source, reading.spread(), date};
  }
  std::erase_if(machine.levels, [](const Level& level) {
    return !level.capacity && !level.read_bandwidth && !level.latency;
  });
  return machine;
}

json report_to_json(const Report& report, const std::string& date, Effort effort) {
  json file = machine_to_json(measured_machine(report, date));
  json& all = file["measurement"];
  all = {{"date", date},
         {"effort", effort == Effort::quick ? "quick" : "full"},
         {"readings", json::array()},
         {"curves", json::array()},
         {"conditions", report.conditions},
         {"missing", report.missing}};
  for (const Reading& reading : report.readings) {
    all["readings"].push_back(reading_to_json(reading, judge(reading, report.base)));
  }
  for (const Curve& curve : report.curves) {
    all["curves"].push_back({{"id", curve.id},
                             {"label", curve.label},
                             {"quantity", kQuantities[static_cast<int>(curve.quantity)]},
                             {"bytes", curve.x},
                             {"values", curve.y}});
  }
  return file;
}

std::vector<Reading> readings_from_json(const json& file, std::string_view where_view) {
  const std::string where(where_view);
  Machine machine = machine_from_json(file, where_view);
  std::vector<Reading> readings;
  if (const auto all = file.find("measurement"); all != file.end()) {
    const auto list = all->find("readings");
    if (list == all->end() || !list->is_array()) {
      throw Error("{}: measurement needs a list \"readings\"", where);
    }
    for (size_t i = 0; i < list->size(); ++i) {
      readings.push_back(reading_from_json((*list)[i], fmt::format("{}: readings[{}]", where, i)));
    }
    return readings;
  }
  const Machine copy = machine;
  for (const std::string& path : known_numbers(copy)) {
    const Maybe* number = number_of(machine, copy, path);
    if (!number || !*number) continue;
    readings.push_back(summarize(path, path, quantity_of_path(path), {**number}, "file"));
  }
  return readings;
}

}  // namespace ridge
