// Machines as JSON: strict reading (an unknown field is a typo, not an extension) and writing.
#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "machine/atlas.h"

namespace ridge {
namespace {

using nlohmann::json;

constexpr const char* kScopes[] = {"unit", "device", "host", "network"};
constexpr const char* kOrigins[] = {"datasheet", "derived", "measured", "estimate"};
constexpr const char* kKinds[] = {"gpu", "accelerator", "cpu", "soc"};

// Wide enough for any machine of the next decades, narrow enough to catch a wrong unit.
struct Range {
  double low, high;
};
constexpr Range kYear{1990, 2100};
constexpr Range kUnits{1, 1e7};
constexpr Range kLanes{1, 1e5};
constexpr Range kClock{1e6, 1e11};      // Hz
constexpr Range kPeak{1e6, 1e19};       // operations/s
constexpr Range kCapacity{1, 1e17};     // bytes
constexpr Range kBandwidth{1e3, 1e17};  // bytes/s
constexpr Range kSeconds{1e-12, 10};    // latencies and launch costs
constexpr Range kPower{0.01, 1e6};      // W
constexpr Range kPrice{0, 1e6};         // dollars
constexpr Range kSpread{0, 100};
constexpr double kMaxInstances = 1e7;
constexpr int64_t kMaxNodeDevices = 100'000;

Maybe number(const json& object, std::string_view key, std::string_view where, Range range) {
  return number_field(object, key, where, range.low, range.high);
}

void check_object(const json& value, const std::string& where,
                  std::initializer_list<const char*> fields) {
  if (!value.is_object()) throw Error("{}: must be an object", where);
  const std::vector<std::string> known(fields.begin(), fields.end());
  for (const auto& item : value.items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    const std::vector<std::string> near = nearest_names(item.key(), known, 1);
    throw Error("{}: unknown field \"{}\"{}", where, item.key(),
                near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near[0]));
  }
}

template <typename Enum, size_t N>
Enum choice(const json& object, std::string_view key, const std::string& where,
            const char* const (&names)[N], Enum fallback) {
  const std::optional<std::string> text = string_field(object, key, where);
  if (!text) return fallback;
  for (size_t i = 0; i < N; ++i) {
    if (*text == names[i]) return static_cast<Enum>(i);
  }
  throw Error("{}: {} must be one of {}, not \"{}\"", where, key, fmt::join(names, ", "), *text);
}

// A name is part of the paths that provenance uses, so it holds no dot.
std::string part_name(const json& object, const std::string& where) {
  std::string name = string_field(object, "name", where).value_or("");
  if (name.empty()) throw Error("{}: needs a \"name\"", where);
  if (name.find('.') != std::string::npos) throw Error("{}: name must not hold a dot", where);
  return name;
}

const json* list(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return nullptr;
  if (!found->is_array()) throw Error("{}: {} must be a list", where, key);
  return &*found;
}

const json* object_field(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return nullptr;
  if (!found->is_object()) throw Error("{}: {} must be an object", where, key);
  return &*found;
}

std::array<Maybe, kDTypeCount> read_peaks(const json& object, const char* key,
                                          const std::string& where) {
  std::array<Maybe, kDTypeCount> peaks;
  const json* table = object_field(object, key, where);
  if (!table) return peaks;
  const std::string inside = fmt::format("{}: {}", where, key);
  for (const auto& item : table->items()) {
    DType dtype{};
    try {
      dtype = dtype_from_name(item.key());
    } catch (const Error& error) {
      throw Error("{}: {}", inside, error.what());
    }
    peaks[static_cast<int>(dtype)] = number(*table, item.key(), inside, kPeak);
  }
  return peaks;
}

Level read_level(const json& object, const std::string& where) {
  check_object(object, where,
               {"name", "scope", "capacity", "instances", "read_bandwidth", "latency"});
  Level level;
  level.name = part_name(object, where);
  level.scope = choice(object, "scope", where, kScopes, Scope::device);
  level.capacity = number(object, "capacity", where, kCapacity);
  level.instances = number_field(object, "instances", where, 1, kMaxInstances).value_or(1);
  level.read_bandwidth = number(object, "read_bandwidth", where, kBandwidth);
  level.latency = number(object, "latency", where, kSeconds);
  return level;
}

// [[bytes, seconds], ...], from small to large.
std::vector<LinkPoint> read_points(const json& object, const char* key, const std::string& where) {
  std::vector<LinkPoint> points;
  const json* const found = list(object, key, where);
  if (found == nullptr) return points;
  for (const json& item : *found) {
    const bool pair =
        item.is_array() && item.size() == 2 && item[0].is_number() && item[1].is_number();
    const LinkPoint point =
        pair ? LinkPoint{item[0].get<double>(), item[1].get<double>()} : LinkPoint{};
    const bool in_range = point.bytes > 0 && point.bytes <= kCapacity.high &&
                          point.seconds >= kSeconds.low && point.seconds <= kSeconds.high;
    if (!in_range || (!points.empty() && point.bytes <= points.back().bytes)) {
      throw Error("{}: {}: pairs of bytes and seconds, from small to large", where, key);
    }
    points.push_back(point);
  }
  return points;
}

Link read_link(const json& object, const std::string& where) {
  check_object(object, where,
               {"name", "bandwidth", "latency", "max_devices", "p2p", "exchanges", "messages",
                "copy_bandwidth"});
  Link link;
  link.name = part_name(object, where);
  link.bandwidth = number(object, "bandwidth", where, kBandwidth);
  link.latency = number(object, "latency", where, kSeconds);
  link.max_devices =
      static_cast<int>(integer_field(object, "max_devices", where, 1, kMaxNodeDevices).value_or(1));
  link.p2p = bool_field(object, "p2p", where);
  link.exchanges = read_points(object, "exchanges", where);
  link.messages = read_points(object, "messages", where);
  link.copy_bandwidth = number(object, "copy_bandwidth", where, kBandwidth);
  return link;
}

Provenance read_provenance(const json& object, const std::string& where) {
  check_object(object, where, {"origin", "source", "spread", "date"});
  if (!object.contains("origin")) throw Error("{}: needs an \"origin\"", where);
  Provenance provenance;
  provenance.origin = choice(object, "origin", where, kOrigins, Origin::datasheet);
  provenance.source = string_field(object, "source", where).value_or("");
  if (provenance.source.empty()) throw Error("{}: needs a \"source\"", where);
  provenance.spread = number(object, "spread", where, kSpread);
  provenance.date = string_field(object, "date", where).value_or("");
  return provenance;
}

template <typename Item>
void check_unique(const std::vector<Item>& items, const std::string& where) {
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (items[i].name == items[j].name) {
        throw Error("{}: \"{}\" appears twice", where, items[i].name);
      }
    }
  }
}

void check_provenance(const Machine& machine, const std::string& where) {
  for (const std::string& path : known_numbers(machine)) {
    if (!provenance_of(machine, path)) {
      throw Error(
          "{}: {} has no provenance; add \"provenance\": {{\"{}\": {{\"origin\": ..., "
          "\"source\": ...}}}} (\"\" covers all)",
          where, path, path);
    }
  }
}

template <typename Target>
void put(Target& object, const char* key, const Maybe& value) {
  if (value) object[key] = *value;
}

template <typename Target>
void put(Target& object, const char* key, const std::string& value) {
  if (!value.empty()) object[key] = value;
}

void put_points(json& object, const char* key, const std::vector<LinkPoint>& points) {
  for (const LinkPoint& point : points) object[key].push_back({point.bytes, point.seconds});
}

json peaks_to_json(const std::array<Maybe, kDTypeCount>& peaks) {
  json table = json::object();
  for (int i = 0; i < kDTypeCount; ++i) {
    if (peaks[i]) table[std::string(dtype_name(static_cast<DType>(i)))] = *peaks[i];
  }
  return table;
}

}  // namespace

Machine machine_from_json(const json& object, std::string_view where_view) {
  const std::string where(where_view);
  // What `ridge machine NAME --json` prints holds the machine among other things.
  if (object.is_object() && object.contains("system") && object.contains("machine")) {
    return machine_from_json(object["machine"], where);
  }
  // "measurement" is what `ridge measure` saw beside the numbers (src/measure/report.cc reads it).
  check_object(object, where,
               {"name",           "title",      "aliases",    "vendor", "isa",   "kind",
                "architecture",   "year",       "units",      "lanes",  "clock", "peak",
                "sustained",      "levels",     "links",      "launch", "power", "notes",
                "price_per_hour", "provenance", "measurement"});
  Machine machine;
  machine.name = part_name(object, where);
  machine.title = string_field(object, "title", where).value_or("");
  machine.vendor = string_field(object, "vendor", where).value_or("");
  machine.architecture = string_field(object, "architecture", where).value_or("");
  machine.isa = string_field(object, "isa", where).value_or("");
  machine.kind = choice(object, "kind", where, kKinds, MachineKind::gpu);
  machine.year = number(object, "year", where, kYear);
  machine.units = number(object, "units", where, kUnits);
  machine.lanes = number(object, "lanes", where, kLanes);
  machine.clock = number(object, "clock", where, kClock);
  machine.peak = read_peaks(object, "peak", where);
  machine.sustained = read_peaks(object, "sustained", where);
  machine.power = number(object, "power", where, kPower);
  machine.price_per_hour = number(object, "price_per_hour", where, kPrice);
  machine.notes = string_field(object, "notes", where).value_or("");

  if (const json* aliases = list(object, "aliases", where)) {
    for (const json& alias : *aliases) {
      if (!alias.is_string()) throw Error("{}: aliases must be strings", where);
      machine.aliases.push_back(alias.get<std::string>());
    }
  }
  if (const json* levels = list(object, "levels", where)) {
    for (size_t i = 0; i < levels->size(); ++i) {
      machine.levels.push_back(read_level((*levels)[i], fmt::format("{}: levels[{}]", where, i)));
    }
    check_unique(machine.levels, where + ": levels");
  }
  if (const json* links = list(object, "links", where)) {
    for (size_t i = 0; i < links->size(); ++i) {
      machine.links.push_back(read_link((*links)[i], fmt::format("{}: links[{}]", where, i)));
    }
    check_unique(machine.links, where + ": links");
  }
  if (const json* launch = object_field(object, "launch", where)) {
    const std::string inside = where + ": launch";
    check_object(*launch, inside, {"stream", "graph", "persistent"});
    machine.launch.stream = number(*launch, "stream", inside, kSeconds);
    machine.launch.graph = number(*launch, "graph", inside, kSeconds);
    machine.launch.persistent = number(*launch, "persistent", inside, kSeconds);
  }
  if (const json* provenance = object_field(object, "provenance", where)) {
    for (const auto& item : provenance->items()) {
      machine.provenance[item.key()] =
          read_provenance(item.value(), fmt::format("{}: provenance \"{}\"", where, item.key()));
    }
  }
  check_provenance(machine, where);
  return machine;
}

json machine_to_json(const Machine& machine) {
  json object = json::object();
  put(object, "name", machine.name);
  put(object, "title", machine.title);
  if (!machine.aliases.empty()) object["aliases"] = machine.aliases;
  put(object, "vendor", machine.vendor);
  put(object, "architecture", machine.architecture);
  put(object, "isa", machine.isa);
  object["kind"] = kKinds[static_cast<int>(machine.kind)];
  put(object, "year", machine.year);
  put(object, "units", machine.units);
  put(object, "lanes", machine.lanes);
  put(object, "clock", machine.clock);
  object["peak"] = peaks_to_json(machine.peak);
  const json sustained = peaks_to_json(machine.sustained);
  if (!sustained.empty()) object["sustained"] = sustained;
  object["levels"] = json::array();
  for (const Level& level : machine.levels) {
    json item = {{"name", level.name}, {"scope", kScopes[static_cast<int>(level.scope)]}};
    put(item, "capacity", level.capacity);
    if (level.instances != 1) item["instances"] = level.instances;
    put(item, "read_bandwidth", level.read_bandwidth);
    put(item, "latency", level.latency);
    object["levels"].push_back(std::move(item));
  }
  object["links"] = json::array();
  for (const Link& link : machine.links) {
    json item = {{"name", link.name}, {"max_devices", link.max_devices}};
    put(item, "bandwidth", link.bandwidth);
    put(item, "latency", link.latency);
    if (link.p2p) item["p2p"] = *link.p2p;
    put_points(item, "exchanges", link.exchanges);
    put_points(item, "messages", link.messages);
    put(item, "copy_bandwidth", link.copy_bandwidth);
    object["links"].push_back(std::move(item));
  }
  json launch = json::object();
  put(launch, "stream", machine.launch.stream);
  put(launch, "graph", machine.launch.graph);
  put(launch, "persistent", machine.launch.persistent);
  if (!launch.empty()) object["launch"] = launch;
  put(object, "power", machine.power);
  put(object, "price_per_hour", machine.price_per_hour);
  put(object, "notes", machine.notes);
  object["provenance"] = json::object();
  for (const auto& [path, provenance] : machine.provenance) {
    json item = {{"origin", kOrigins[static_cast<int>(provenance.origin)]},
                 {"source", provenance.source}};
    put(item, "spread", provenance.spread);
    put(item, "date", provenance.date);
    object["provenance"][path] = std::move(item);
  }
  return object;
}

}  // namespace ridge
