#include "cli/options.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/units.h"
#include "machine/atlas.h"
#include "model/read.h"

namespace ridge {
namespace {

constexpr size_t kMaxPoints = 100000;

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

class Axes {
 public:
  template <typename Set>
  void number(const char* name, const std::string& text, double low, double high, bool whole,
              Set set) {
    if (text.empty()) return;
    Parameter axis{name, {}};
    for (const double value : parse_sweep(text, std::string("--") + name)) {
      if (!(value >= low && value <= high) || (whole && value != std::floor(value))) {
        throw Error("--{} must be {} from {} to {}, not {}", name,
                    whole ? "a whole number" : "a number", label_of(low), label_of(high),
                    label_of(value));
      }
      axis.choices.push_back({label_of(value), [=](Request& r) { set(r, value); }});
    }
    axes_.push_back(std::move(axis));
  }

  // `make` turns a name into the edit; it runs once per name.
  template <typename Make>
  void names(const char* name, const std::string& text, Make make) {
    if (text.empty()) return;
    Parameter axis{name, {}};
    for (const std::string& part : split(text, name)) axis.choices.push_back({part, make(part)});
    axes_.push_back(std::move(axis));
  }

  RequestGrid product() const {
    size_t points = 1;
    for (const Parameter& axis : axes_) {
      points *= axis.choices.size();
      if (points > kMaxPoints) throw Error("a sweep may have at most {} points", kMaxPoints);
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

// Without a word on parallelism a machine is used whole: tensor parallelism inside a node, as far
// as the heads can be cut, pipeline stages across nodes.
void spread_over_machine(Request& r) {
  int heads = 0;
  for (const LayerGroup& g : r.model->groups) {
    heads = std::max({heads, g.layer.mixer.heads, g.layer.mixer.value_heads});
  }
  r.plan.tp = r.system.devices_per_node;
  while (heads > 0 && heads % r.plan.tp != 0) --r.plan.tp;
  r.plan.pp = std::min(r.system.nodes, r.model->layers());
}

void add_name_axes(Axes& axes, const RequestOptions& o) {
  axes.names("model", o.model, [](const std::string& name) {
    auto model = std::make_shared<const Model>(find_model(name));
    return [model](Request& r) { r.model = model; };
  });
  axes.names("machine", o.machine, [](const std::string& name) {
    auto system = std::make_shared<const System>(find_system(name));
    return [system](Request& r) { r.system = *system; };
  });
  axes.names("stack", o.stack, [](const std::string& name) {
    return [stack = find_stack(name)](Request& r) { r.stack = stack; };
  });
  axes.names("weights", o.weights, [](const std::string& name) {
    return [format = format_from_name(name)](Request& r) { r.plan.weights = format; };
  });
  axes.names("kv", o.kv, [](const std::string& name) {
    return [format = format_from_name(name)](Request& r) { r.plan.kv = format; };
  });
  axes.names("activations", o.activations, [](const std::string& name) {
    return [dtype = dtype_from_name(name)](Request& r) { r.plan.activations = dtype; };
  });
  axes.names("draft", o.draft, [](const std::string& name) {
    auto model = std::make_shared<const Model>(find_model(name));
    return [model](Request& r) { r.draft = model; };
  });
}

void add_number_axes(Axes& axes, const RequestOptions& o) {
  axes.number("tp", o.tp, 1, 100000, true, [](Request& r, double v) { r.plan.tp = int(v); });
  axes.number("pp", o.pp, 1, 100000, true, [](Request& r, double v) { r.plan.pp = int(v); });
  axes.number("dp", o.dp, 1, 100000, true, [](Request& r, double v) { r.plan.dp = int(v); });
  axes.number("ep", o.ep, 1, 100000, true, [](Request& r, double v) { r.plan.ep = int(v); });
  axes.number("batch", o.batch, 1, 1e7, true, [](Request& r, double v) { r.batch = v; });
  axes.number("context", o.context, 1, 1e9, true, [](Request& r, double v) { r.context = v; });
  axes.number("prompt", o.prompt, 1, 1e9, true, [](Request& r, double v) { r.prompt = v; });
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
  axes.number("price", o.price, 0, 1e6, false, [](Request& r, double v) { r.price_per_hour = v; });
}

}  // namespace

void add_request_options(CLI::App& c, RequestOptions& o) {
  c.add_option("--model,-m", o.model, "Built-in name, config.json, GGUF or safetensors path")
      ->group("What runs where");
  c.add_option("--machine,-M", o.machine, "Machine: h200, 8xh100-sxm, 2x8xh100-sxm, this, a file")
      ->group("What runs where");
  c.add_option("--stack", o.stack, "Software: typical (default), ideal")->group("What runs where");
  c.add_option("--batch,-b", o.batch, "Sequences decoding at once, in all")->group("Load");
  c.add_option("--context,-c", o.context, "Tokens in each sequence's cache")->group("Load");
  c.add_option("--prompt,-p", o.prompt, "Prompt tokens, for the time to first token")
      ->group("Load");
  c.add_option("--weights", o.weights, "bf16, fp8, int8, int4[-gN], nf4, mxfp4, nvfp4, q4_k ...")
      ->group("Precision");
  c.add_option("--kv", o.kv, "KV cache: bf16, fp8, int8, int4")->group("Precision");
  c.add_option("--activations", o.activations, "fp8 or int8 to run products in it; bf16")
      ->group("Precision");
  c.add_option("--tp", o.tp, "Tensor parallel ranks (default: the machine's devices)")
      ->group("Parallelism");
  c.add_option("--pp", o.pp, "Pipeline stages")->group("Parallelism");
  c.add_option("--dp", o.dp, "Replicas that share the batch")->group("Parallelism");
  c.add_option("--ep", o.ep, "Ranks the experts are spread over")->group("Parallelism");
  c.add_option("--chunk", o.chunk, "Chunked prefill: prompt tokens per step; 0: off")
      ->group("Techniques");
  c.add_option("--prefix-hit", o.prefix_hit, "Share of the prompt found in the prefix cache")
      ->group("Techniques");
  c.add_option("--speculate", o.speculate, "Draft tokens per step")->group("Techniques");
  c.add_option("--acceptance", o.acceptance, "Probability that a draft token is accepted")
      ->group("Techniques");
  c.add_option("--draft", o.draft, "Draft model (default: drafting is free)")->group("Techniques");
  c.add_option("--expert-skew", o.expert_skew, "Routing skew: popularity falls as rank^-S")
      ->group("Techniques");
  c.add_option("--offload", o.offload, "Share of the weights streamed from host memory")
      ->group("Techniques");
  c.add_flag("--no-flash", o.no_flash, "Attention that materialises n x n")->group("Techniques");
  c.add_flag("--no-fusion", o.no_fusion, "Every elementwise operator a kernel")
      ->group("Techniques");
  c.add_flag("--no-graphs", o.no_graphs, "Kernels launched one by one")->group("Techniques");
  c.add_flag("--no-paging", o.no_paging, "Every sequence reserves its maximum")
      ->group("Techniques");
  c.add_option("--reserve", o.reserve, "Tokens reserved per sequence with --no-paging")
      ->check(CLI::Range(0.0, 1e9))
      ->group("Techniques");
  c.add_flag("--no-continuous", o.no_continuous, "A batch ends with its longest sequence")
      ->group("Techniques");
  c.add_option("--price", o.price, "Dollars per device and hour")->group("Cost");
}

RequestGrid make_requests(const RequestOptions& o) {
  Axes axes;
  add_name_axes(axes, o);
  add_number_axes(axes, o);
  RequestGrid grid = axes.product();
  const bool spread = o.tp.empty() && o.pp.empty() && o.dp.empty();
  for (Request& r : grid.requests) {
    if (spread) spread_over_machine(r);
    r.plan.flash = !o.no_flash;
    r.plan.fusion = !o.no_fusion;
    r.plan.graphs = !o.no_graphs;
    r.plan.paging = !o.no_paging;
    r.plan.continuous = !o.no_continuous;
    r.plan.reserve = o.reserve;
  }
  return grid;
}

}  // namespace ridge
