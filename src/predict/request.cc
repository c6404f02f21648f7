#include "predict/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/units.h"
#include "machine/atlas.h"
#include "model/builtin.h"
#include "model/read.h"
#include "predict/layout.h"
#include "roofline/default_stack.h"

namespace ridge {
namespace {

// One value of one parameter: what it is called and what it does to a request.
struct Choice {
  std::string label;
  std::function<void(Request&)> apply;
};

struct Parameter {
  std::string name;
  std::vector<Choice> choices;
};

std::vector<std::string> split(const std::string& text, const char* what) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (part.empty()) throw Error("--{}: empty name in '{}'", what, text);
    parts.push_back(part);
  }
  if (parts.empty()) throw Error("--{} needs a name", what);
  return parts;
}

std::string label_of(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

// Errors of `work` are reported as errors of that option.
template <typename Work>
auto naming(const char* option, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    throw OptionError(option, error.what());
  }
}

constexpr double kLargestBatch = 0;  // stands for the largest batch that fits

class Axes {
 public:
  template <typename Set>
  void number(const char* name, const std::string& text, double low, double high, bool whole,
              Set set) {
    if (text.empty()) return;
    Parameter axis{name, {}};
    const bool share = !whole && high == 1;
    if (!share && text.find('%') != text.npos) {
      throw OptionError(name, fmt::format("--{} takes no percentage: '{}'", name, text));
    }
    for (const double value : naming(name, [&] { return parse_sweep(text, "--" + axis.name); })) {
      if (!(value >= low && value <= high) || (whole && value != std::floor(value))) {
        throw OptionError(name, fmt::format("--{} must be {} from {} to {}, not {}", name,
                                            whole ? "a whole number" : "a number", label_of(low),
                                            label_of(high), label_of(value)));
      }
      axis.choices.push_back({label_of(value), [=](Request& r) { set(r, value); }});
    }
    axes_.push_back(std::move(axis));
  }

  // A list of numbers, whose last element may be "max": kLargestBatch, which derive_batch replaces.
  void batch(std::string text) {
    const size_t comma = text.rfind(',');
    const size_t last = comma == text.npos ? 0 : comma + 1;
    const bool largest = text.substr(last) == "max";
    if (largest) text.resize(comma == text.npos ? 0 : comma);
    number("batch", text, 1, 1e7, true, [](Request& r, double v) { r.batch = v; });
    if (!largest) return;
    if (text.empty()) axes_.push_back({"batch", {}});
    axes_.back().choices.push_back({"max", [](Request& r) { r.batch = kLargestBatch; }});
  }

  // `make` turns a name into the edit; it runs once per name.
  template <typename Make>
  void names(const char* name, const std::string& text, Make make) {
    if (text.empty()) return;
    Parameter axis{name, {}};
    naming(name, [&] {
      for (const std::string& part : split(text, name)) axis.choices.push_back({part, make(part)});
    });
    axes_.push_back(std::move(axis));
  }

  RequestGrid product(size_t max_points) const {
    size_t points = 1;
    for (const Parameter& axis : axes_) {
      points *= axis.choices.size();
      if (points > max_points) throw Error("a sweep may have at most {} points", max_points);
    }
    RequestGrid grid;
    for (const Parameter& axis : axes_) {
      if (axis.choices.size() < 2) continue;
      SweepAxis& shown = grid.axes.emplace_back(SweepAxis{axis.name, {}});
      for (const Choice& choice : axis.choices) shown.labels.push_back(choice.label);
    }
    for (size_t point = 0; point < points; ++point) {
      Request& request = grid.requests.emplace_back();
      std::vector<size_t>& at = grid.at.emplace_back();
      size_t rest = point, block = points;
      for (const Parameter& axis : axes_) {
        block /= axis.choices.size();
        const size_t i = rest / block;
        rest %= block;
        axis.choices[i].apply(request);
        if (axis.choices.size() > 1) at.push_back(i);
      }
    }
    return grid;
  }

 private:
  std::vector<Parameter> axes_;
};

constexpr double kDefaultPrompt = 1024;

void derive_lengths(Request& r, const RequestOptions& o) {
  if (o.prompt == kAuto) r.prompt = o.context == kAuto ? kDefaultPrompt : r.context;
  const bool endpoint = r.clients || r.rate;
  if (o.context == kAuto) {
    r.context = endpoint ? std::ceil(r.prompt + r.output / 2) : std::max(r.context, r.prompt);
  }
}

// What runs at once depends on the layout.
void derive_batch(Request& r, const RequestOptions& o) {
  if (r.rate) {
    Load load;
    load.prompt = r.prompt;
    load.output = r.output;
    r.clients = endpoint_batch(r, load) >= 1 ? clients_at_rate(r, load, *r.rate) : 1;
  }
  if (o.batch == kAuto && r.clients) {
    r.batch = std::max(1.0, endpoint_batch(r, endpoint_load(r)));
  }
  if (r.batch == kLargestBatch) {
    r.batch = 1;
    r.batch = std::max(1.0, predict(r).memory.max_batch);
  }
}

void set_stack(Request& r, const Stack& stack) {
  r.stack = stack;
  r.plan.quantizes_head = stack.quantizes_head;
}

// The stack `name`, or for kAuto the machine's default. Stacks are read once per list of requests.
std::function<void(Request&)> stack_choice(const std::string& name) {
  if (name != kAuto) {
    return [stack = find_stack(name)](Request& r) { set_stack(r, stack); };
  }
  auto known = std::make_shared<std::map<std::string, Stack>>();
  return [known](Request& r) {
    const std::string chosen = default_stack(r.system.device);
    auto it = known->find(chosen);
    if (it == known->end()) it = known->emplace(chosen, find_stack(chosen)).first;
    set_stack(r, it->second);
    r.default_stack = true;
  };
}

void add_name_axes(Axes& axes, const RequestOptions& o, Sources sources) {
  axes.names("model", o.model, [=](const std::string& name) {
    auto model = std::make_shared<const Model>(find_model(name, sources));
    return [model](Request& r) { r.model = model; };
  });
  axes.names("machine", o.machine, [=](const std::string& name) {
    auto system = std::make_shared<const System>(find_system(name, sources));
    return [system](Request& r) { r.system = *system; };
  });
  axes.names("stack", o.stack, stack_choice);
  axes.names("weights", o.weights, [](const std::string& name) {
    return [format = format_from_name(name)](Request& r) { r.plan.weights = format; };
  });
  axes.names("kv", o.kv, [](const std::string& name) {
    return [format = format_from_name(name)](Request& r) { r.plan.kv = format; };
  });
  axes.names("activations", o.activations, [](const std::string& name) {
    return [dtype = dtype_from_name(name)](Request& r) { r.plan.activations = dtype; };
  });
  axes.names("draft", o.draft, [=](const std::string& name) {
    auto model = std::make_shared<const Model>(find_model(name, sources));
    return [model](Request& r) { r.draft = model; };
  });
}

// "$2.5,$3" -> "2.5,3".
std::string without_dollars(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && (i == 0 || text[i - 1] == ',')) text.erase(i, 1);
  }
  return text;
}

void add_number_axes(Axes& axes, const RequestOptions& o) {
  axes.number("tp", o.tp, 1, 100000, true, [](Request& r, double v) { r.plan.tp = int(v); });
  axes.number("pp", o.pp, 1, 100000, true, [](Request& r, double v) { r.plan.pp = int(v); });
  axes.number("dp", o.dp, 1, 100000, true, [](Request& r, double v) { r.plan.dp = int(v); });
  axes.number("ep", o.ep, 1, 100000, true, [](Request& r, double v) { r.plan.ep = int(v); });
  const auto given = [](const std::string& text) { return text == kAuto ? std::string() : text; };
  if (o.output != RequestOptions().output && (o.clients + o.rate).empty()) {
    throw OptionError("output", "--output needs --clients or --rate: only an endpoint answers");
  }
  if (!o.clients.empty() && !o.rate.empty()) {
    throw OptionError("rate", "--rate determines the clients: leave out one of both");
  }
  if (!(o.clients + o.rate).empty() && !(given(o.batch) + given(o.context)).empty()) {
    throw OptionError(o.rate.empty() ? "clients" : "rate",
                      "--clients and --rate determine batch and context: leave out "
                      "--batch and --context");
  }
  axes.batch(given(o.batch));
  axes.number("context", given(o.context), 1, 1e9, true,
              [](Request& r, double v) { r.context = v; });
  axes.number("prompt", given(o.prompt), 1, 1e9, true, [](Request& r, double v) { r.prompt = v; });
  axes.number("clients", o.clients, 1, 1e7, true, [](Request& r, double v) { r.clients = v; });
  axes.number("rate", o.rate, 1e-6, 1e7, false, [](Request& r, double v) { r.rate = v; });
  axes.number("output", o.output, 1, 1e9, true, [](Request& r, double v) { r.output = v; });
  axes.number("chunk", o.chunk, 0, 1e9, true, [](Request& r, double v) { r.plan.chunk = v; });
  axes.number("prefix-hit", o.prefix_hit, 0, 1, false,
              [](Request& r, double v) { r.plan.prefix_hit = v; });
  axes.number("speculate", o.speculate, 0, 64, true,
              [](Request& r, double v) { r.plan.speculate = int(v); });
  axes.number("acceptance", o.acceptance, 0, 1, false,
              [](Request& r, double v) { r.plan.acceptance = v; });
  axes.number("expert-skew", o.expert_skew, 0, 4, false,
              [](Request& r, double v) { r.plan.expert_skew = v; });
  axes.number("offload", o.offload, 0, 1, false, [](Request& r, double v) { r.plan.offload = v; });
  axes.number("reserve", o.reserve, 0, 1e9, false,
              [](Request& r, double v) { r.plan.reserve = v; });
  axes.number("price", without_dollars(o.price), 0, 1e6, false,
              [](Request& r, double v) { r.price_per_hour = v; });
}

using O = RequestOptions;
constexpr const char* kWhere = "What runs where";
constexpr const char* kLoad = "Load";
constexpr const char* kPrecision = "Precision";
constexpr const char* kParallelism = "Parallelism";
constexpr const char* kTechniques = "Techniques";

constexpr RequestOption text(const char* name, const char* letter, const char* group,
                             const char* help, std::string O::*value) {
  return {name, letter, group, help, value, nullptr};
}
constexpr RequestOption flag(const char* name, const char* help, bool O::*value) {
  return {name, "", kTechniques, help, nullptr, value};
}

constexpr RequestOption kRequestOptions[] = {
    text("model", "m", kWhere, "Built-in name, config.json, GGUF or safetensors path", &O::model),
    text("machine", "M", kWhere, "Machine: h200, 8xh100-sxm, 2x8xh100-sxm, this, a file",
         &O::machine),
    text("stack", "", kWhere,
         "Software: auto (the machine's default), typical, ideal, vllm, sglang, trtllm, llama.cpp, "
         "ridge, ridge-cuda",
         &O::stack),
    text("batch", "b", kLoad,
         "Sequences decoding at once, in all; max: as many as fit; default 1, or an endpoint's",
         &O::batch),
    text("context", "c", kLoad, "Tokens in each sequence's cache; default 2048 or the prompt",
         &O::context),
    text("prompt", "p", kLoad,
         "Prompt tokens, for the time to first token; default: the context, or 1024", &O::prompt),
    text("clients", "", kLoad,
         "Predict an endpoint with this many concurrent requests, see --output", &O::clients),
    text("rate", "", kLoad, "Predict an endpoint that gets this many requests a second", &O::rate),
    text("output", "", kLoad, "Tokens of an answer, with --clients or --rate", &O::output),
    text("weights", "", kPrecision,
         "bf16, fp8, int8, int4[-gN], awq, gptq, nf4, mxfp4, nvfp4, q4_k_m ...", &O::weights),
    text("kv", "", kPrecision, "KV cache: bf16, fp8, int8, int4", &O::kv),
    text("activations", "", kPrecision,
         "Type the GEMMs run in: bf16, fp8, int8 (default: follows the weights)", &O::activations),
    text("tp", "", kParallelism, "Tensor parallel ranks (default: the fastest layout that fits)",
         &O::tp),
    text("pp", "", kParallelism, "Pipeline stages", &O::pp),
    text("dp", "", kParallelism, "Replicas that share the batch", &O::dp),
    text("ep", "", kParallelism, "Ranks the experts are spread over", &O::ep),
    text("chunk", "", kTechniques, "Chunked prefill: prompt tokens per step; 0: off", &O::chunk),
    text("prefix-hit", "", kTechniques, "Share of the prompt found in the prefix cache",
         &O::prefix_hit),
    text("speculate", "", kTechniques, "Draft tokens per step", &O::speculate),
    text("acceptance", "", kTechniques, "Probability that a draft token is accepted",
         &O::acceptance),
    text("draft", "", kTechniques, "Draft model (default: drafting costs nothing)", &O::draft),
    text("expert-skew", "", kTechniques, "Routing skew: popularity falls as rank^-S",
         &O::expert_skew),
    text("offload", "", kTechniques, "Share of the weights streamed from host memory", &O::offload),
    flag("no-flash", "Attention that materialises the n x n scores", &O::no_flash),
    flag("no-fusion", "Every elementwise operator is a kernel of its own", &O::no_fusion),
    flag("no-graphs", "Kernels launched one by one instead of by a graph", &O::no_graphs),
    flag("no-paging", "Every sequence reserves its maximum KV cache", &O::no_paging),
    text("reserve", "", kTechniques, "Tokens reserved per sequence with --no-paging", &O::reserve),
    flag("no-continuous", "Static batching: a batch ends with its longest sequence",
         &O::no_continuous),
    text("price", "", "Cost", "Dollars per device and hour: 2.5, $2.5", &O::price),
};

}  // namespace

std::span<const RequestOption> request_options() { return kRequestOptions; }

RequestGrid make_requests(const RequestOptions& o, Sources sources, size_t max_points,
                          size_t max_layouts) {
  // An option given as "" (an unset shell variable) is not an option left out.
  const std::pair<const char*, const std::string&> needed[] = {
      {"model", o.model}, {"machine", o.machine}, {"stack", o.stack},
      {"batch", o.batch}, {"context", o.context}, {"prompt", o.prompt}};
  for (const auto& [name, value] : needed) {
    if (value.empty()) throw OptionError(name, fmt::format("--{} is empty", name));
  }
  Axes axes;
  add_name_axes(axes, o, sources);
  add_number_axes(axes, o);
  RequestGrid grid = axes.product(max_points);
  const bool spread = o.tp.empty() && o.pp.empty() && o.dp.empty();
  const auto has_layouts = [](const Request& request) { return request.system.devices() > 1; };
  if (spread && std::count_if(grid.requests.begin(), grid.requests.end(), has_layouts) >
                    static_cast<ptrdiff_t>(max_layouts)) {
    throw Error("at most {} points on several devices, unless tp, pp or dp is given", max_layouts);
  }
  parallel_for(grid.requests.size(), [&](size_t i) {
    Request& r = grid.requests[i];
    r.plan.flash = !o.no_flash;
    r.plan.fusion = !o.no_fusion;
    r.plan.graphs = !o.no_graphs;
    r.plan.paging = !o.no_paging;
    r.plan.continuous = !o.no_continuous;
    derive_lengths(r, o);
    if (spread) choose_layout(r, !o.ep.empty());
    derive_batch(r, o);
  });
  return grid;
}

Request make_request(const RequestOptions& options, Sources sources) {
  RequestGrid grid = make_requests(options, sources);
  if (!grid.axes.empty()) {
    const std::string& name = grid.axes.front().name;
    throw OptionError(name, fmt::format("--{} takes a single value here", name));
  }
  return std::move(grid.requests.front());
}

System find_system(std::string_view name, Sources sources) {
  const bool path = name.ends_with(".json") || name.find('/') != std::string_view::npos;
  if (path && sources == Sources::names_only) {
    throw Error("machines are given by name here, not by file: \"{}\"", name);
  }
  return find_system(name);
}

Model find_model(std::string_view name, Sources sources) {
  if (sources == Sources::names_and_files) return find_model(name);
  if (std::optional<Model> model = builtin_model(name)) return *std::move(model);
  const auto near = nearest_names(fold_model_name(name), builtin_model_names());
  throw Error("unknown model \"{}\"{}", name,
              near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, ", ")));
}

}  // namespace ridge
