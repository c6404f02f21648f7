#include "machine/machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ridge {

const Level* Machine::level(std::string_view level_name) const {
  for (const Level& candidate : levels) {
    if (candidate.name == level_name) return &candidate;
  }
  return nullptr;
}

const Level& Machine::memory() const {
  const Level* found = nullptr;
  for (const Level& candidate : levels) {
    if (candidate.scope == Scope::device) found = &candidate;
  }
  if (!found) throw Error("machine {} has no level of scope device: its memory is unknown", name);
  return *found;
}

const Level* Machine::cache() const {
  const Level* main_memory = &memory();
  const Level* largest = nullptr;
  for (const Level& candidate : levels) {
    if (&candidate == main_memory) break;
    // Registers hold operands, not data that another operator could find again.
    if (candidate.name == "registers" || !candidate.total_capacity()) continue;
    if (!largest || *candidate.total_capacity() >= *largest->total_capacity()) {
      largest = &candidate;
    }
  }
  return largest;
}

Maybe Machine::ridge(DType dtype) const {
  const Maybe flops = peak_of(dtype);
  const Maybe bandwidth = memory().read_bandwidth;
  if (!flops || !bandwidth) return std::nullopt;
  return *flops / *bandwidth;
}

const Provenance* provenance_of(const Machine& machine, std::string_view path) {
  // "levels.HBM.latency", then "levels.HBM", "levels" and at last "".
  for (std::string prefix(path); !prefix.empty();) {
    const auto found = machine.provenance.find(prefix);
    if (found != machine.provenance.end()) return &found->second;
    const size_t dot = prefix.rfind('.');
    prefix.resize(dot == std::string::npos ? 0 : dot);
  }
  const auto whole = machine.provenance.find("");
  return whole == machine.provenance.end() ? nullptr : &whole->second;
}

std::vector<std::string> known_numbers(const Machine& machine) {
  std::vector<std::string> paths;
  const auto add = [&](const Maybe& value, std::string path) {
    if (value) paths.push_back(std::move(path));
  };
  add(machine.year, "year");
  add(machine.units, "units");
  add(machine.lanes, "lanes");
  add(machine.clock, "clock");
  for (int i = 0; i < kDTypeCount; ++i) {
    const std::string_view dtype = dtype_name(static_cast<DType>(i));
    add(machine.peak[i], fmt::format("peak.{}", dtype));
    add(machine.sustained[i], fmt::format("sustained.{}", dtype));
  }
  for (const Level& level : machine.levels) {
    add(level.capacity, fmt::format("levels.{}.capacity", level.name));
    add(level.read_bandwidth, fmt::format("levels.{}.read_bandwidth", level.name));
    add(level.latency, fmt::format("levels.{}.latency", level.name));
  }
  for (const Link& link : machine.links) {
    add(link.bandwidth, fmt::format("links.{}.bandwidth", link.name));
    add(link.latency, fmt::format("links.{}.latency", link.name));
  }
  add(machine.launch.stream, "launch.stream");
  add(machine.launch.graph, "launch.graph");
  add(machine.launch.persistent, "launch.persistent");
  add(machine.power, "power");
  add(machine.price_per_hour, "price_per_hour");
  return paths;
}

namespace {

void replace(Maybe& base, const Maybe& top) {
  if (top) base = top;
}

void replace(std::string& base, const std::string& top) {
  if (!top.empty()) base = top;
}

// Scope and number of instances stay as the base has them: a partial file (one measured
// bandwidth) does not repeat the topology.
void overlay_levels(std::vector<Level>& base, const std::vector<Level>& top) {
  size_t place = 0;  // where a level that the base lacks goes: after its inner neighbour
  for (const Level& level : top) {
    size_t at = 0;
    while (at < base.size() && base[at].name != level.name) ++at;
    if (at == base.size()) {
      base.insert(base.begin() + static_cast<ptrdiff_t>(place), level);
      at = place;
    } else {
      replace(base[at].capacity, level.capacity);
      replace(base[at].read_bandwidth, level.read_bandwidth);
      replace(base[at].latency, level.latency);
    }
    place = at + 1;
  }
}

void overlay_links(std::vector<Link>& base, const std::vector<Link>& top) {
  for (const Link& link : top) {
    size_t at = 0;
    while (at < base.size() && base[at].name != link.name) ++at;
    if (at == base.size()) {
      base.push_back(link);
      continue;
    }
    replace(base[at].bandwidth, link.bandwidth);
    replace(base[at].latency, link.latency);
    if (link.p2p) base[at].p2p = link.p2p;
    if (link.bandwidth || link.latency || !link.exchanges.empty()) {  // of one measurement
      base[at].copy_bandwidth = link.copy_bandwidth;
      base[at].exchanges = link.exchanges;
      base[at].messages = link.messages;
    }
    base[at].max_devices = std::max(base[at].max_devices, link.max_devices);
  }
}

}  // namespace

Machine overlay(Machine base, const Machine& top) {
  replace(base.title, top.title);
  replace(base.vendor, top.vendor);
  replace(base.architecture, top.architecture);
  replace(base.isa, top.isa);
  replace(base.notes, top.notes);
  for (const std::string& alias : top.aliases) {
    if (std::ranges::find(base.aliases, alias) == base.aliases.end()) base.aliases.push_back(alias);
  }
  replace(base.year, top.year);
  replace(base.units, top.units);
  replace(base.lanes, top.lanes);
  replace(base.clock, top.clock);
  for (int i = 0; i < kDTypeCount; ++i) {
    replace(base.peak[i], top.peak[i]);
    replace(base.sustained[i], top.sustained[i]);
  }
  overlay_levels(base.levels, top.levels);
  overlay_links(base.links, top.links);
  replace(base.launch.stream, top.launch.stream);
  replace(base.launch.graph, top.launch.graph);
  replace(base.launch.persistent, top.launch.persistent);
  replace(base.power, top.power);
  replace(base.price_per_hour, top.price_per_hour);
  // Each replaced number brings its own provenance, under its full path, so that a general entry
  // of `top` never claims a number that came from the base.
  for (const std::string& path : known_numbers(top)) {
    if (const Provenance* provenance = provenance_of(top, path)) {
      base.provenance[path] = *provenance;
    }
  }
  return base;
}

std::string System::name() const {
  if (nodes > 1) return fmt::format("{}x{}x{}", nodes, devices_per_node, device.name);
  if (devices_per_node > 1) return fmt::format("{}x{}", devices_per_node, device.name);
  return device.name;
}

}  // namespace ridge
