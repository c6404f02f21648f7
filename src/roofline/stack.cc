#include "roofline/stack.h"

#include <cstring>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace ridge {
namespace {

constexpr std::string_view kPrefix = "stacks/";

double share(const nlohmann::json& object, std::string_view key, std::string_view where) {
  return number_field(object, key, where, 0.001, 1).value_or(1);
}

double seconds(const nlohmann::json& object, std::string_view key, std::string_view where) {
  return number_field(object, key, where, 0, 1).value_or(0);
}

Stack stack_from_json(const nlohmann::json& json, const std::string& where) {
  Stack stack;
  stack.name = string_field(json, "name", where).value_or("");
  stack.title = string_field(json, "title", where).value_or("");
  stack.basis = string_field(json, "basis", where).value_or("");
  stack.calibrated = bool_field(json, "calibrated", where).value_or(false);
  const auto kinds = json.value("kinds", nlohmann::json::object());
  for (int i = 0; i < kOpKindCount; ++i) {
    const std::string key(op_kind_name(static_cast<OpKind>(i)));
    if (!kinds.contains(key)) continue;
    const std::string place = where + ": kinds." + key;
    stack.kinds[i] = {share(kinds[key], "compute", place), share(kinds[key], "memory", place),
                      seconds(kinds[key], "ramp", place)};
  }
  stack.link = share(json, "link", where);
  stack.link_latency = seconds(json, "link_latency", where);
  stack.counts_launches = bool_field(json, "counts_launches", where).value_or(false);
  stack.graph_launch = seconds(json, "graph_launch", where);
  stack.stream_launch = seconds(json, "stream_launch", where);
  stack.cpu_launch = seconds(json, "cpu_launch", where);
  stack.step = seconds(json, "step", where);
  stack.layer = seconds(json, "layer", where);
  stack.prompt_step = seconds(json, "prompt_step", where);
  stack.first = seconds(json, "first", where);
  stack.burst = number_field(json, "burst", where, 0, 1).value_or(0);
  stack.chunk = number_field(json, "chunk", where, 1, 1e9).value_or(stack.chunk);
  stack.low = number_field(json, "low", where, 0.1, 1).value_or(1);
  stack.high = number_field(json, "high", where, 1, 10).value_or(1);
  return stack;
}

}  // namespace

std::vector<std::string> stack_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path; ++file) {
    std::string_view path = file->path;
    if (!path.starts_with(kPrefix)) continue;
    path.remove_prefix(kPrefix.size());
    names.emplace_back(path.substr(0, path.size() - std::strlen(".json")));
  }
  return names;
}

Stack find_stack(std::string_view name) {
  const std::string path = fmt::format("{}{}.json", kPrefix, name);
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path; ++file) {
    if (path == file->path) return stack_from_json(parse_json(file->text, path), path);
  }
  throw Error("unknown stack '{}'; known: {}", name, fmt::join(stack_names(), ", "));
}

}  // namespace ridge
