// One machine: its pyramid, what fits where, ridge points, links, fixed costs, sources.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/machine_view.h"
#include "machine/atlas.h"
#include "predict/pyramid.h"

namespace ridge {
namespace {

constexpr int kBarWidth = 20;
constexpr double kBarFloor = 1e9;  // bytes/s where the bars begin: below any link of today

std::string count_text(const Level& level, const PyramidPiece& piece) {
  const Maybe count = count_in(level, piece);
  if (!count) return "?";
  return *count < 1 ? "-" : pretty_count(*count);
}

std::string capacity_text(const Machine& machine, const Level& level) {
  if (!level.capacity) return "?";
  const std::string one = size_text(machine, level, *level.capacity);
  return level.instances > 1 ? fmt::format("{} x {:g}", one, level.instances) : one;
}

std::string bandwidth_bar(const Level& level, double fastest) {
  if (!level.read_bandwidth || fastest <= kBarFloor) return "";
  const double fraction =
      std::log(*level.read_bandwidth / kBarFloor) / std::log(fastest / kBarFloor);
  return bar(std::clamp(fraction, 0.0, 1.0), kBarWidth);
}

void print_pyramid(const Machine& machine, const Model& model) {
  double fastest = 0;
  for (const Level& level : machine.levels) {
    fastest = std::max(fastest, level.read_bandwidth.value_or(0));
  }
  std::vector<std::string> header = {"level", "capacity", "bandwidth", "latency", "(log scale)"};
  const std::vector<PyramidPiece> pieces = pieces_of(model);
  for (const PyramidPiece& piece : pieces) header.push_back(piece.name);
  Table table(header);
  for (const Level& level : machine.levels) {
    std::vector<std::string> row = {
        level.name, capacity_text(machine, level), or_unknown(level.read_bandwidth, pretty_rate),
        or_unknown(level.latency, pretty_time), bandwidth_bar(level, fastest)};
    for (const PyramidPiece& piece : pieces) row.push_back(count_text(level, piece));
    table.add(row);
  }
  fmt::print(
      "{}\nHow many fit: a 128x128 tile of fp16 ({}), a KV page of 16 tokens of {} ({}), "
      "one of its layers\n({}), its weights ({}).\n",
      table.text(), pretty_binary(pieces[0].bytes), model.name, pretty_binary(pieces[1].bytes),
      pretty_bytes(pieces[2].bytes), pretty_bytes(pieces[3].bytes));
}

void print_ridges(const Machine& machine) {
  const bool sustained = std::any_of(machine.sustained.begin(), machine.sustained.end(),
                                     [](const Maybe& value) { return value.has_value(); });
  std::vector<std::string> header = {"dtype", "peak", "ridge FLOP/byte"};
  if (sustained) header.push_back("sustained");
  Table table(header);
  bool any = false;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (!machine.peak[i]) continue;
    any = true;
    const DType dtype = static_cast<DType>(i);
    std::vector<std::string> row = {std::string(dtype_name(dtype)),
                                    pretty_flop_rate(*machine.peak[i]),
                                    or_unknown(machine.ridge(dtype), pretty_number)};
    if (sustained) row.push_back(or_unknown(machine.sustained[i], pretty_flop_rate));
    table.add(row);
  }
  if (!any) {
    fmt::print("\nThe peak is unknown, so the ridge is too.\n");
    return;
  }
  const std::string& memory = machine.memory().name;
  fmt::print("\n{}", table.text());
  if (machine.memory().read_bandwidth) {
    fmt::print("Work with fewer FLOP per byte of {} than the ridge is memory-bound.\n", memory);
  } else {
    fmt::print("The bandwidth of {} is unknown, so the ridge is too.\n", memory);
  }
}

void print_rest(const Machine& machine) {
  const Launch& launch = machine.launch;
  const bool costs = launch.stream || launch.graph || launch.persistent;
  if (!machine.links.empty() || costs || machine.power || !machine.notes.empty()) fmt::print("\n");
  for (const Link& link : machine.links) {
    fmt::print("link    {}: {} one way, latency {}, joins up to {}\n", link.name,
               or_unknown(link.bandwidth, pretty_rate), or_unknown(link.latency, pretty_time),
               link.max_devices);
  }
  if (costs) {
    fmt::print("launch  stream {}, graph edge {}, barrier inside a kernel {}\n",
               or_unknown(launch.stream, pretty_time), or_unknown(launch.graph, pretty_time),
               or_unknown(launch.persistent, pretty_time));
  }
  if (machine.power) fmt::print("power   {:g} W\n", *machine.power);
  if (machine.price_per_hour)
    fmt::print("price   {:.2f} dollars per hour\n", *machine.price_per_hour);
  if (!machine.notes.empty()) fmt::print("note    {}\n", machine.notes);
}

std::string origin_text(const Provenance& provenance) {
  constexpr const char* kNames[] = {"datasheet", "derived", "measured", "estimate"};
  std::string text = kNames[static_cast<int>(provenance.origin)];
  if (!provenance.date.empty()) text += " " + provenance.date;
  if (provenance.spread) text += fmt::format(", spread {}", pretty_percent(*provenance.spread));
  return text;
}

// Grouped: one line per source, with the numbers that come from it.
void print_sources(const Machine& machine) {
  std::map<const Provenance*, std::vector<std::string>> numbers;
  const auto whole = machine.provenance.find("");
  for (const std::string& path : known_numbers(machine)) {
    numbers[provenance_of(machine, path)].push_back(
        path.starts_with("levels.") || path.starts_with("links.") ? path.substr(path.find('.') + 1)
                                                                  : path);
  }
  std::map<std::string, std::vector<std::string>> lines;  // text of the source -> numbers
  for (const auto& [provenance, paths] : numbers) {
    const bool rest = whole != machine.provenance.end() && provenance == &whole->second;
    std::vector<std::string>& line =
        lines[fmt::format("{}: {}", origin_text(*provenance), provenance->source)];
    if (rest) {
      line.push_back("other");
    } else {
      line.insert(line.end(), paths.begin(), paths.end());
    }
  }
  fmt::print("\nSources\n");
  for (const auto& [source, paths] : lines) {
    fmt::print("  {} [{}]\n", source, fmt::join(paths, ", "));
  }
}

Maybe times(const Maybe& value, int count) { return value ? Maybe(*value * count) : std::nullopt; }

void print_node(const System& system) {
  const Machine& machine = system.device;
  const int count = system.devices();
  Table table({"together", "total"});
  table.add({"devices", fmt::format("{}", count)});
  if (const std::optional<DType> dtype = headline_dtype(machine)) {
    table.add({fmt::format("peak {}", dtype_name(*dtype)),
               or_unknown(times(machine.peak_of(*dtype), count), pretty_flop_rate)});
  }
  const Level& memory = machine.memory();
  table.add({"memory", or_unknown(times(memory.capacity, count), pretty_bytes)});
  table.add({"bandwidth", or_unknown(times(memory.read_bandwidth, count), pretty_rate)});
  if (system.devices_per_node > 1) {
    // The fastest link that joins as many devices as the node has.
    for (const Link& link : machine.links) {
      if (link.max_devices < system.devices_per_node) continue;
      table.add({fmt::format("{} in a node", link.name),
                 or_unknown(times(link.bandwidth, system.devices_per_node), pretty_rate)});
      break;
    }
  }
  if (system.nodes > 1) {
    const Level* network = machine.level("network");
    table.add({"network of a node",
               or_unknown(
                   network ? times(network->read_bandwidth, system.devices_per_node) : std::nullopt,
                   pretty_rate)});
  }
  table.add({"power of the devices", or_unknown(times(machine.power, count), [](double watts) {
               return fmt::format("{:.3g} kW", watts / 1e3);
             })});
  fmt::print("{}\nOne device:\n", table.text());
}

}  // namespace

std::string size_text(const Machine& machine, const Level& level, double bytes) {
  const bool memory = &level == &machine.memory() || level.scope >= Scope::host;
  return memory ? pretty_bytes(bytes) : pretty_binary(bytes);
}

void print_machine(const System& system, const Model& model, const MachineView& view) {
  const Machine& machine = system.device;
  if (view.json) {
    fmt::print("{}\n", pyramid_json(system, model).dump(2));
    return;
  }
  fmt::print("{}", paint(Colour::bold, system.name()));
  fmt::print("  {}", machine.title);
  for (const std::string& part : {machine.architecture, machine.isa}) {
    if (!part.empty()) fmt::print(", {}", part);
  }
  if (machine.year) fmt::print(", {:g}", *machine.year);
  fmt::print("\n\n");
  if (system.devices() > 1) print_node(system);
  print_pyramid(machine, model);
  print_ridges(machine);
  print_rest(machine);
  print_sources(machine);
}

}  // namespace ridge
