#include "diagnose/identify.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "machine/atlas.h"
#include "machine/nvml.h"
#include "model/builtin.h"

namespace ridge {
namespace {

// Models in files are names of the hub or paths: "/models/Llama-3.1-8B-Instruct-FP8". Only the
// atlas is searched: a file must not make Ridge open another one.
std::optional<std::string> model_in_files(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const size_t slash = name.find_last_of('/');
  std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
  if (last.ends_with(".gguf")) last.resize(last.size() - 5);
  // Ollama writes the size as a tag: "llama3:70b".
  std::replace(last.begin(), last.end(), ':', '-');
  // Suffixes of quantized copies: the format is found by weights_in_name().
  for (bool cut = true; cut;) {
    if (const std::optional<Model> model = builtin_model(last)) return model->name;
    const size_t dash = last.find_last_of("-_.");
    cut = dash != std::string::npos && dash > 3;
    if (cut) last.resize(dash);
  }
  return std::nullopt;
}

std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "Llama-3.1-70B-Instruct-FP8" -> fp8; "Qwen2.5-7B-Instruct-AWQ" -> int4; empty: the model's own.
std::string weights_in_name(const std::string& name) {
  const std::string text = lower(name);
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (has("fp8") || has("w8a8-fp")) return "fp8";
  if (has("nvfp4") || has("mxfp4") || has("-fp4")) return "mxfp4";
  if (has("awq") || has("gptq") || has("int4") || has("w4a16") || has("-4bit")) return "int4";
  if (has("int8") || has("w8a8") || has("w8a16") || has("-8bit")) return "int8";
  for (const char* format :
       {"q2_k", "q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0"}) {
    if (has(format)) return format;
  }
  return "";
}

void fill_model(RequestOptions& o, const RunSetup& setup, Identified& found) {
  if (o.model != kAuto) return;
  const std::optional<std::string> model = model_in_files(setup.model);
  if (!model) {
    found.missing.push_back(
        setup.model.empty()
            ? "--model: which model it is (no file says so)"
            : fmt::format("--model: '{}' is no model of the atlas; give its config.json or a "
                          "similar model",
                          setup.model));
    return;
  }
  o.model = *model;
  found.taken.push_back(fmt::format("model {} ('{}')", *model, setup.model));
}

void fill_formats(RequestOptions& o, const RunSetup& setup, Identified& found) {
  std::string weights = setup.weights.empty() ? weights_in_name(setup.model) : setup.weights;
  // What its library serves where the tag names no format.
  if (weights.empty() && setup.engine == "ollama" && !setup.model.empty()) weights = "q4_k_m";
  const auto known = [](const std::string& name) {
    try {
      format_from_name(name);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (o.weights.empty() && !weights.empty() && known(weights)) {
    o.weights = weights;
    found.taken.push_back("weights " + weights);
  }
  if (o.kv.empty() && !setup.kv.empty() && known(setup.kv)) {
    o.kv = setup.kv;
    found.taken.push_back("KV cache " + setup.kv);
  }
}

void fill_machine(RequestOptions& o, const RunSetup& setup, Identified& found) {
  if (o.machine != kAuto) return;
  const std::optional<std::string> machine =
      setup.device.empty() ? std::nullopt : machine_of_device_name(setup.device);
  if (!machine) {
    found.missing.push_back(
        setup.device.empty()
            ? "--machine: which devices it runs on (no file says so)"
            : fmt::format("--machine: '{}' is no machine of the atlas", setup.device));
    return;
  }
  const int ranks = setup.tp.value_or(1) * setup.pp.value_or(1) * setup.dp.value_or(1);
  const int devices = std::max(setup.devices.value_or(1), ranks);
  o.machine = devices > 1 ? fmt::format("{}x{}", devices, *machine) : *machine;
  found.taken.push_back(fmt::format("machine {} ('{}')", o.machine, setup.device));
}

void fill_layout(RequestOptions& o, const RunSetup& setup, Identified& found) {
  if (!o.tp.empty() || !o.pp.empty() || !o.dp.empty()) return;
  const auto set = [&](std::string& option, const std::optional<int>& value, const char* name) {
    if (!value || *value < 1) return;
    option = std::to_string(*value);
    if (*value > 1) found.taken.push_back(fmt::format("{} {}", name, *value));
  };
  set(o.tp, setup.tp, "tp");
  set(o.pp, setup.pp, "pp");
  set(o.dp, setup.dp, "dp");
}

void fill_stack(RequestOptions& o, const RunSetup& setup, Sources sources) {
  if (o.stack != kAuto) return;
  for (const char* engine : {"vllm", "sglang", "trtllm", "llama.cpp"}) {
    if (setup.engine == engine) o.stack = engine;
  }
  if (setup.engine == "nim" || setup.engine == "tgi") o.stack = "vllm";
  // Formats of GGUF files.
  const bool gguf = o.weights.starts_with("q") || o.weights.starts_with("iq");
  if (setup.engine == "ollama" || (setup.engine.empty() && gguf)) o.stack = "llama.cpp";
  if (setup.engine == "ridge" && o.machine != kAuto) {
    const bool gpu = find_system(o.machine, sources).device.kind == MachineKind::gpu;
    o.stack = gpu ? "ridge-cuda" : "ridge";
  }
}

void fill_lengths(RequestOptions& o, const Observations& seen, Identified& found) {
  const auto whole = [](double value) { return fmt::format("{:.0f}", std::max(1.0, value)); };
  if (o.prompt == kAuto && seen.has(Quantity::prompt)) {
    o.prompt = whole(*seen[Quantity::prompt]);
  }
  found.context_known = o.context != kAuto;
  if (o.context == kAuto && seen.has(Quantity::prompt)) {
    o.context = whole(*seen[Quantity::prompt] + seen.value_or(Quantity::output, 0) / 2);
    found.context_known = true;
  }
  if (o.prefix_hit == "0" && seen.has(Quantity::prompt_hit)) {
    o.prefix_hit = fmt::format("{:.4f}", std::min(0.99, *seen[Quantity::prompt_hit]));
  }
}

void fill_techniques(RequestOptions& o, const Observations& seen) {
  if (seen.setup.eager.value_or(false)) o.no_graphs = true;
  if (o.offload == "0" && seen.setup.offloaded.value_or(0) > 0) {
    o.offload = fmt::format("{:.4f}", std::min(1.0, *seen.setup.offloaded));
  }
  const double drafted = seen.value_or(Quantity::drafted, 0);
  if (o.speculate == "0" && drafted >= 0.5) o.speculate = fmt::format("{:.0f}", drafted);
}

// Speculation yields 1 + accepted tokens a step. The plan has a probability per draft token, of
// which that is the sum of a geometric series.
void set_acceptance(Request& r, const Observations& seen) {
  const std::optional<double>& accepted = seen[Quantity::accepted];
  if (!accepted || r.plan.speculate < 1) return;
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    r.plan.acceptance = (low + high) / 2;
    (tokens_per_step(r.plan) < 1 + *accepted ? low : high) = r.plan.acceptance;
  }
}

}  // namespace

Identified identify(const RequestOptions& options, const Observations& seen, Sources sources) {
  Identified found;
  RequestOptions o = options;
  fill_model(o, seen.setup, found);
  fill_machine(o, seen.setup, found);
  fill_formats(o, seen.setup, found);
  fill_layout(o, seen.setup, found);
  fill_stack(o, seen.setup, sources);
  fill_lengths(o, seen, found);
  fill_techniques(o, seen);
  if (o.machine != kAuto && o.machine.find(',') == std::string::npos) {
    found.system = find_system(o.machine, sources);
  }
  if (o.model == kAuto || o.machine == kAuto) {
    // The rest of the options must be sound all the same.
    RequestOptions probe = options;
    if (probe.model == kAuto) probe.model = kDefaultModel;
    if (probe.machine == kAuto) probe.machine = kDefaultMachine;
    probe.tp = probe.pp = probe.dp = probe.ep = "";
    make_request(probe, sources);
    return found;
  }
  found.request = make_request(o, sources);
  set_acceptance(*found.request, seen);
  return found;
}

}  // namespace ridge
