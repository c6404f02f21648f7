#include "roofline/stack.h"

#include <cctype>
#include <cstring>

#include "base/dtype.h"
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

// What the object does not name stays as it is.
void read_kinds(Efficiencies& kinds, const nlohmann::json& json, const std::string& where) {
  if (!json.is_object()) throw Error("{}: efficiencies by operator kind are an object", where);
  for (const auto& [key, value] : json.items()) {
    const auto has_name = [&, &name = key](int i) {
      return op_kind_name(static_cast<OpKind>(i)) == name;
    };
    int kind = 0;
    while (kind < kOpKindCount && !has_name(kind)) ++kind;
    if (kind == kOpKindCount) throw Error("{}: '{}' is no operator kind", where, key);
    const std::string place = where + "." + key;
    kinds[kind] = {share(value, "compute", place), share(value, "memory", place),
                   seconds(value, "ramp", place)};
  }
}

std::vector<StepEfficiencies> read_steps(const nlohmann::json& json, const Efficiencies& kinds,
                                         const std::string& where) {
  if (!json.is_array()) throw Error("{}: a list, from small steps to large ones", where);
  std::vector<StepEfficiencies> steps;
  for (const auto& each : json) {
    const std::string place = fmt::format("{}[{}]", where, steps.size());
    const double least = steps.empty() ? 1 : steps.back().tokens + 1;
    const auto tokens = number_field(each, "tokens", place, least, 1e9);
    if (!tokens) throw Error("{}: tokens, the most of such a step, are missing", place);
    StepEfficiencies step{*tokens, kinds, {}};
    read_kinds(step.kinds, each.value("kinds", nlohmann::json::object()), place + ".kinds");
    const nlohmann::json weights = each.value("weights", nlohmann::json::object());
    if (!weights.is_object()) throw Error("{}.weights: kinds by the weights' format", place);
    for (const auto& [format, own] : weights.items()) {
      const std::string of_format = fmt::format("{}.weights.{}", place, format);
      const std::string name = format_from_name(format).name;  // throws where there is none
      read_kinds(step.weights.emplace_back(name, step.kinds).second, own, of_format);
    }
    steps.push_back(step);
  }
  return steps;
}

CpuTiles read_cpu_tiles(const nlohmann::json& json, const std::string& where) {
  const std::string name = string_field(json, "cpu_tiles", where).value_or("all");
  if (name == "none") return CpuTiles::none;
  if (name == "bf16 gemms") return CpuTiles::bf16_gemms;
  if (name == "all") return CpuTiles::all;
  throw Error("{}: cpu_tiles \"{}\": none, bf16 gemms or all", where, name);
}

StackHome read_home(const nlohmann::json& json, const std::string& where) {
  const auto text = [&](const char* key) { return string_field(json, key, where).value_or(""); };
  return {text("name"), bool_field(json, "cpu", where).value_or(false), text("vendor"),
          text("architecture"), int(number_field(json, "devices", where, 1, 1e5).value_or(0))};
}

EngineMemory read_memory(const nlohmann::json& json, const std::string& where) {
  EngineMemory memory;
  memory.share = share(json, "share", where);
  memory.overhead = number_field(json, "overhead", where, 0, 1e12).value_or(memory.overhead);
  constexpr std::string_view kParts[] = {"everything", "weights_and_kv", "kv"};
  const std::string of = string_field(json, "of", where).value_or("everything");
  int part = 0;
  while (part < 3 && kParts[part] != of) ++part;
  if (part == 3) throw Error("{}: of must be {}, not \"{}\"", where, fmt::join(kParts, ", "), of);
  memory.of = static_cast<MemoryShare>(part);
  return memory;
}

// Numbers for every kind of model, and under "experts" and "latent" those that differ.
std::array<HostCosts, kHostKinds> read_hosts(const nlohmann::json& json, const std::string& where) {
  const auto read = [&](HostCosts host, const nlohmann::json& from, const std::string& place) {
    const auto set = [&](double& value, const char* key, double low, double high) {
      value = number_field(from, key, place, low, high).value_or(value);
    };
    set(host.step, "step", 0, 1);
    set(host.layer, "layer", 0, 1);
    set(host.sequence, "sequence", 0, 1);
    set(host.experts, "experts_factor", 0.1, 10);
    set(host.prompt, "prompt_factor", 0.1, 10);
    set(host.prompt_experts, "prompt_experts_factor", 0.1, 10);
    set(host.prompt_floor, "prompt_floor", 0, 1);
    set(host.first, "first", 0, 10);
    set(host.first_layer, "first_layer", 0, 1);
    return host;
  };
  const auto part = [&](const char* key) { return json.value(key, nlohmann::json::object()); };
  const HostCosts dense = read({}, json, where);
  const HostCosts experts = read(dense, part("experts"), where + ".experts");
  return {dense, experts, read(experts, part("latent"), where + ".latent")};
}

std::vector<StackBackend> read_backends(const nlohmann::json& json, const Stack& stack,
                                        const std::string& where) {
  if (!json.is_array()) throw Error("{}: a list", where);
  std::vector<StackBackend> backends;
  for (const auto& each : json) {
    const std::string place = fmt::format("{}[{}]", where, backends.size());
    StackBackend backend{read_home(each.value("home", nlohmann::json::object()), place + ".home"),
                         stack.kinds, stack.graph_launch};
    read_kinds(backend.kinds, each.value("kinds", nlohmann::json::object()), place + ".kinds");
    if (each.contains("graph_launch")) backend.graph_launch = seconds(each, "graph_launch", place);
    backends.push_back(backend);
  }
  return backends;
}

Stack stack_from_json(const nlohmann::json& json, const std::string& where) {
  Stack stack;
  stack.name = string_field(json, "name", where).value_or("");
  stack.title = string_field(json, "title", where).value_or("");
  stack.basis = string_field(json, "basis", where).value_or("");
  stack.calibrated = bool_field(json, "calibrated", where).value_or(false);
  stack.home = read_home(json.value("home", nlohmann::json::object()), where + ": home");
  read_kinds(stack.kinds, json.value("kinds", nlohmann::json::object()), where + ": kinds");
  stack.steps =
      read_steps(json.value("steps", nlohmann::json::array()), stack.kinds, where + ": steps");
  stack.link = share(json, "link", where);
  stack.link_latency = seconds(json, "link_latency", where);
  stack.counts_launches = bool_field(json, "counts_launches", where).value_or(false);
  stack.graph_launch = seconds(json, "graph_launch", where);
  stack.stream_launch = seconds(json, "stream_launch", where);
  stack.cpu_launch = seconds(json, "cpu_launch", where);
  stack.cpu_tiles = read_cpu_tiles(json, where);
  stack.cpu_tile_compute = share(json, "cpu_tile_compute", where);
  stack.hosts = read_hosts(json.value("host", nlohmann::json::object()), where + ": host");
  stack.fused_quantization = bool_field(json, "fused_quantization", where).value_or(false);
  stack.quantizes_head = bool_field(json, "quantizes_head", where).value_or(false);
  stack.whole_experts_kernel = string_field(json, "whole_experts_kernel", where).value_or("");
  stack.few_tokens_experts_kernel =
      string_field(json, "few_tokens_experts_kernel", where).value_or("");
  stack.chunk = number_field(json, "chunk", where, 1, 1e9).value_or(stack.chunk);
  stack.memory = read_memory(json.value("memory", nlohmann::json::object()), where + ": memory");
  stack.backends =
      read_backends(json.value("backends", nlohmann::json::array()), stack, where + ": backends");
  stack.cpu = read_cpu_kernels(json.value("cpu", nlohmann::json::array()), where + ": cpu");
  stack.low = number_field(json, "low", where, 0.1, 1).value_or(1);
  stack.high = number_field(json, "high", where, 1, 10).value_or(1);
  return stack;
}

}  // namespace

const Efficiencies& StepEfficiencies::of(std::string_view format) const {
  const Efficiencies* found = &kinds;
  for (const auto& [name, own] : weights) {
    if (format == name) return own;
    if (format.starts_with(name + "-")) found = &own;
  }
  return *found;
}

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

Stack stack_from_text(std::string_view text, const std::string& where) {
  return stack_from_json(parse_json(text, where), where);
}

Stack find_stack(std::string_view name) {
  std::string folded(name);  // "vLLM", "TensorRT-LLM"
  for (char& c : folded) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (folded == "tensorrt-llm" || folded == "trt-llm") folded = "trtllm";
  const std::string path = fmt::format("{}{}.json", kPrefix, folded);
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path; ++file) {
    if (path == file->path) return stack_from_text(file->text, path);
  }
  throw Error("unknown stack '{}'; known: {}", name, fmt::join(stack_names(), ", "));
}

}  // namespace ridge
