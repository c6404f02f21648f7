// Names to machines: the embedded atlas, the user's folders over it, counts in front of a name.
#include "machine/atlas.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "machine/detect.h"
#include "machine/user_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEmbeddedFolder = "machines/";
constexpr int kMaxDevices = 100'000;

std::string& chosen_folder() {
  static std::string folder;
  return folder;
}

// "NVIDIA H100_SXM5" and "h100-sxm5" are the same name: letters and digits only, no vendor.
std::string plain(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '+') {
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  for (const std::string_view vendor : {"nvidia", "amd", "intel", "google", "aws"}) {
    if (key.size() > vendor.size() && key.starts_with(vendor)) key.erase(0, vendor.size());
  }
  return key;
}

bool answers_to(const Machine& machine, const std::string& key) {
  return plain(machine.name) == key ||
         std::any_of(machine.aliases.begin(), machine.aliases.end(),
                     [&](const std::string& alias) { return plain(alias) == key; });
}

Machine parse_embedded(const EmbeddedFile& file) {
  const std::string where = std::string("atlas/") + file.path;
  return machine_from_json(parse_json(file.text, where), where);
}

const std::vector<Machine>& embedded_machines() {
  static const std::vector<Machine> machines = [] {
    std::vector<Machine> list;
    for (const EmbeddedFile* file = kEmbeddedFiles; file->path; ++file) {
      if (std::string_view(file->path).starts_with(kEmbeddedFolder)) {
        list.push_back(parse_embedded(*file));
      }
    }
    return list;
  }();
  return machines;
}

// By file name first, which parses one file; by alias otherwise, which needs all of them.
std::optional<Machine> find_embedded(const std::string& key) {
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path; ++file) {
    std::string_view path = file->path;
    if (!path.starts_with(kEmbeddedFolder)) continue;
    path.remove_prefix(kEmbeddedFolder.size());
    path.remove_suffix(std::string_view(".json").size());
    if (plain(path) == key) return parse_embedded(*file);
  }
  for (const Machine& machine : embedded_machines()) {
    if (answers_to(machine, key)) return machine;
  }
  return std::nullopt;
}

// Nearest first.
std::vector<std::string> user_folders() {
  std::vector<std::string> folders;
  if (!chosen_folder().empty()) folders.push_back(chosen_folder());
  if (const std::string own = user_folder(); !own.empty()) folders.push_back(own);
  return folders;
}

std::vector<Machine> read_folder(const std::string& folder) {
  std::error_code error;
  fs::path place = fs::path(folder) / "machines";
  if (!fs::is_directory(place, error)) place = folder;
  std::vector<std::string> paths;
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".json") paths.push_back(it->path().string());
  }
  // The user's default folder may be missing; a folder given by --atlas may not.
  if (error && folder == chosen_folder()) throw Error("{}: {}", place.string(), error.message());
  std::sort(paths.begin(), paths.end());
  std::vector<Machine> machines;
  for (const std::string& path : paths)
    machines.push_back(machine_from_json(read_json(path), path));
  return machines;
}

// The user's machines, farthest folder first, so that each overlays what came before.
std::vector<Machine> user_machines() {
  std::vector<std::string> folders = user_folders();
  std::reverse(folders.begin(), folders.end());
  std::vector<Machine> machines;
  for (const std::string& folder : folders) {
    for (Machine& machine : read_folder(folder)) machines.push_back(std::move(machine));
  }
  return machines;
}

void put_over(std::optional<Machine>& base, const Machine& top) {
  base = base ? overlay(std::move(*base), top) : top;
}

// A file may hold a single number to put over the atlas; alone it must describe a machine.
void check_complete(Machine& machine) {
  machine.memory();  // throws
  if (machine.title.empty()) machine.title = machine.name;
}

Machine unknown(std::string_view name) {
  std::vector<std::string> names;
  for (const Machine& machine : all_machines()) {
    names.push_back(machine.name);
    names.insert(names.end(), machine.aliases.begin(), machine.aliases.end());
  }
  const std::vector<std::string> near = nearest_names(name, names);
  throw Error("unknown machine \"{}\"{} (`ridge machine` lists all)", name,
              near.empty() ? "" : fmt::format(": did you mean {}?", fmt::join(near, ", ")));
}

Machine find_device(std::string_view name) {
  std::string key = plain(name);
  std::optional<Machine> found;
  const bool is_path = name.ends_with(".json") || name.find('/') != std::string_view::npos;
  if (is_path) {
    const Machine file = machine_from_json(read_json(std::string(name)), name);
    key = plain(file.name);
    found = key == "this" ? detect_this() : find_embedded(key);
    put_over(found, file);
  } else {
    found = key == "this" ? detect_this() : find_embedded(key);
    if (found)
      key = plain(
          found->name);  // an alias of the atlas refers to the same machine as the user's file
    for (const Machine& machine : user_machines()) {
      if (plain(machine.name) == key || (!found && answers_to(machine, key))) {
        put_over(found, machine);
      }
    }
  }
  if (!found) return unknown(name);
  check_complete(*found);
  return *found;
}

// "8x" of "8xh100": digits (or what looks like a number, to refuse it well) before an x. A part
// number is no count: "7950x", "7900 xtx".
std::optional<std::string_view> leading_count(std::string_view text) {
  constexpr size_t kPartDigits = 4;
  const size_t end = text.find_first_not_of("+-.0123456789");
  if (end == 0 || end == std::string_view::npos) return std::nullopt;
  if (text[end] != 'x' && text[end] != 'X') return std::nullopt;
  if (end >= kPartDigits && find_embedded(plain(text))) return std::nullopt;
  return text.substr(0, end);
}

int parse_count(std::string_view digits, std::string_view name) {
  int count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 1 ||
      count > kMaxDevices) {
    throw Error("\"{}\": the count must be a whole number from 1 to {}, not \"{}\"", name,
                kMaxDevices, digits);
  }
  return count;
}

void check_node(const System& system) {
  int most = 1;
  std::string link = "no link";
  for (const Link& candidate : system.device.links) {
    if (candidate.max_devices > most) {
      most = candidate.max_devices;
      link = candidate.name;
    }
  }
  const int total = system.devices();
  if (system.devices_per_node <= most) return;
  int nodes = (total + most - 1) / most;
  while (total % nodes != 0) ++nodes;
  const std::string advice =
      total == nodes ? fmt::format("{}x1x{}", nodes, system.device.name)
                     : fmt::format("{}x{}x{}", nodes, total / nodes, system.device.name);
  throw Error("{}: one node joins at most {} of {} ({}); write the nodes too, as in {}",
              system.name(), most, system.device.name, link, advice);
}

}  // namespace

std::string user_folder() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && *config) {
    return std::string(config) + "/ridge";
  }
  if (const char* home = std::getenv("HOME"); home && *home) {
    return std::string(home) + "/.config/ridge";
  }
  return "";
}

void set_atlas_folder(std::string folder) {
  std::error_code ignored;
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    throw Error("{}: no such folder", folder);
  }
  chosen_folder() = std::move(folder);
}

std::vector<Machine> all_machines() {
  std::vector<Machine> machines = embedded_machines();
  for (const Machine& machine : user_machines()) {
    const std::string key = plain(machine.name);
    if (key == "this") continue;  // detection answers to that name, not the list
    const auto found = std::find_if(machines.begin(), machines.end(),
                                    [&](const Machine& other) { return plain(other.name) == key; });
    if (found == machines.end()) {
      machines.push_back(machine);
      check_complete(machines.back());
    } else {
      *found = overlay(std::move(*found), machine);
    }
  }
  std::sort(machines.begin(), machines.end(), [](const Machine& a, const Machine& b) {
    return std::make_pair(a.year.value_or(0), a.name) < std::make_pair(b.year.value_or(0), b.name);
  });
  return machines;
}

std::optional<Machine> user_machine(std::string_view name) {
  std::optional<Machine> found;
  for (const Machine& machine : user_machines()) {
    if (plain(machine.name) == plain(name)) put_over(found, machine);
  }
  return found;
}

System find_system(std::string_view name) {
  System system;
  std::string_view rest = name;
  std::vector<int> counts;
  while (counts.size() < 2) {
    const std::optional<std::string_view> digits = leading_count(rest);
    if (!digits) break;
    counts.push_back(parse_count(*digits, name));
    rest.remove_prefix(digits->size() + 1);
  }
  if (!counts.empty()) system.devices_per_node = counts.back();
  if (counts.size() == 2) system.nodes = counts.front();
  if (double(system.nodes) * system.devices_per_node > kMaxDevices) {
    throw Error("\"{}\": more than {} devices", name, kMaxDevices);
  }
  system.device = find_device(rest);
  check_node(system);
  return system;
}

Machine find_machine(std::string_view name) {
  const System system = find_system(name);
  if (system.devices() != 1) {
    throw Error("\"{}\" is {} devices; name one machine: {}", name, system.devices(),
                system.device.name);
  }
  return system.device;
}

}  // namespace ridge
