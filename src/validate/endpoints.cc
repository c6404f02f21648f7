#include "validate/endpoints.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "machine/atlas.h"
#include "model/read.h"
#include "predict/predict.h"
#include "serving/closed_loop.h"
#include "validate/csv.h"
#include "validate/endpoint_rows.h"
#include "validate/silicon.h"

namespace ridge {
namespace {

struct BadField {
  std::string why;
};

// One row by column name.
class Row {
 public:
  explicit Row(const CsvReader& csv) : csv_(csv) {}

  std::string text(std::string_view name) const {
    const int at = csv_.column(name);
    return at < 0 ? std::string() : std::string(csv_.field(static_cast<size_t>(at)));
  }
  double number(std::string_view name, double otherwise) const {
    const std::string value = text(name);
    if (value.empty()) return otherwise;
    double result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || !(result >= 0)) {
      throw BadField{fmt::format("{} is '{}', not a number", name, value)};
    }
    return result;
  }

 private:
  const CsvReader& csv_;
};

// "Qwen/Qwen3-235B-A22B-FP8": the precision stands in its own columns.
std::string plain_model_name(std::string name) {
  for (const std::string_view suffix : {"-FP8", "-NVFP4", "-FP4", "-fp8", "-nvfp4"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  }
  return name;
}

// Names repeat from row to row.
class Names {
 public:
  std::shared_ptr<const Model> model(const std::string& name) {
    auto& model = models_[name];
    if (!model) model = std::make_shared<const Model>(find_model(name));
    return model;
  }
  const Stack& stack(const std::string& name) {
    auto it = stacks_.find(name);
    if (it == stacks_.end()) it = stacks_.emplace(name, find_stack(name)).first;
    return it->second;
  }
  const Machine& machine(const std::string& name) {
    auto it = machines_.find(name);
    if (it == machines_.end()) it = machines_.emplace(name, find_machine(name)).first;
    return it->second;
  }

 private:
  std::map<std::string, std::shared_ptr<const Model>> models_;
  std::map<std::string, Stack> stacks_;
  std::map<std::string, Machine> machines_;
};

// The probability of accepting a draft that gives so many tokens a step.
double acceptance_for(double tokens, int drafts) {
  Plan plan;
  plan.speculate = drafts;
  double low = 0, high = 1;
  while (high - low > 1e-6) {
    plan.acceptance = (low + high) / 2;
    (tokens_per_step(plan) < tokens ? low : high) = plan.acceptance;
  }
  return high;
}

bool has_experts(const Model& model) {
  return std::any_of(model.groups.begin(), model.groups.end(),
                     [](const LayerGroup& g) { return g.layer.has_moe(); });
}

// Checkpoints that come quantized keep their own format unless the row says a narrower one.
// DeepSeek, MiniMax and Qwen3.5 have fp8 weights in blocks.
void set_precision(Request& r, const EndpointRow& row) {
  const std::string& mode = row.quantization;
  const auto is = [&](std::string_view part) { return row.model.find(part) != std::string::npos; };
  const bool own = r.model->family == "gpt_oss";
  const bool blocks = is("DeepSeek") || is("MiniMax") || is("Qwen3.5");
  if (mode == "nvfp4" && !own) r.plan.weights = format_from_name("nvfp4");
  if (mode == "fp8") r.plan.weights = format_from_name(blocks ? "fp8-block" : "fp8");
  if (mode == "fp8_block") r.plan.weights = format_from_name("fp8-block");
  if (own) r.plan.weights.reset();
  // The recipes' caches: 8 bits on Blackwell, for Llama, and for DeepSeek on TensorRT-LLM.
  const bool blackwell = row.system.starts_with("b") || row.system.starts_with("gb");
  const bool narrow = blackwell || is("Llama") || (is("DeepSeek") && row.backend == "trtllm");
  if (!mode.empty() && narrow) r.plan.kv = format_from_name("fp8");
}

// Weights that exceed the devices a row names show that its columns do not tell the layout.
bool weights_fit(const Request& r) {
  const Maybe capacity = r.system.device.memory().total_capacity();
  return !capacity || make_rank(*r.model, r.plan).weight_bytes < *capacity;
}

EndpointRow row_of(const Row& row) {
  EndpointRow r;
  r.id = row.text("id");
  r.backend = row.text("backend");
  r.version = row.text("backend_version");
  r.model = row.text("model_path");
  r.system = row.text("system");
  r.mode = row.text("mode");
  r.quantization = row.text("gemm_quant_mode");
  r.measured = row.text("measured");
  const auto set = [&](double& value, const char* name, double most = 1e4) {
    value = row.number(name, 0);
    if (value > most) throw BadField{fmt::format("{} is {}, more than {}", name, value, most)};
  };
  constexpr double kMostTokens = 1e7, kMostClients = 1e6;
  set(r.prompt, "isl", kMostTokens);
  set(r.output, "osl", kMostTokens);
  set(r.clients, "concurrency", kMostClients);
  set(r.tp, "tp_size");
  set(r.pp, "pp_size");
  set(r.attention_dp, "attention_dp_size");
  set(r.moe_tp, "moe_tp_size");
  set(r.moe_ep, "moe_ep_size");
  set(r.prefill_workers, "prefill_num_workers");
  set(r.decode_workers, "decode_num_workers");
  set(r.decode_tp, "decode_tp_size");
  set(r.decode_dp, "decode_attention_dp_size");
  set(r.decode_moe_tp, "decode_moe_tp_size");
  set(r.decode_moe_ep, "decode_moe_ep_size");
  r.ttft_s = row.number("silicon_ttft_ms", 0) / 1e3;
  r.tpot_s = row.number("silicon_tpot_ms", 0) / 1e3;
  if (r.prompt < 1 || r.output < 1 || r.tpot_s <= 0 || r.ttft_s <= 0) {
    throw BadField{"prompt, output and times must be above 0"};
  }
  return r;
}

// nullopt: the layout is not known.
std::optional<Endpoint> endpoint_of(const EndpointRow& row, Names& names) {
  const std::optional<EndpointLayout> layout = layout_of(row);
  Endpoint e;
  e.defect = defect_of(row);
  e.gpu = row.system;
  e.framework = row.backend;
  e.dtype = row.quantization.empty() ? "bfloat16" : row.quantization;
  e.request.model = names.model(plain_model_name(row.model));
  e.request.system.device = names.machine(machine_of_folder(e.gpu));
  e.request.system.devices_per_node = row.system.starts_with("gb") ? 72 : 8;
  e.request.stack = names.stack(e.framework);
  if (row.clients < 1 || !layout) return std::nullopt;
  set_precision(e.request, row);
  Plan& plan = e.request.plan;
  plan.tp = layout->tp;
  plan.dp = layout->dp;
  if (has_experts(*e.request.model)) plan.ep = layout->ep;
  const ServerSettings settings = settings_of(row, *layout);
  if (settings.budget > 0) e.request.stack.chunk = settings.budget;
  if (settings.drafts > 0) {
    plan.speculate = settings.drafts;
    plan.acceptance = acceptance_for(settings.tokens_per_step, settings.drafts);
    e.defect = "multi-token prediction that is not recorded";
  }
  const double share = row.is_public() ? 0.9 : 1;
  e.load.clients = row.clients;
  e.load.prompt = share * row.prompt;
  e.load.output = share * row.output;
  e.load.rounds = 10;
  e.load.spread = 1 / 9.0;
  e.load.poll = settings.poll;
  e.load.wait = settings.wait;
  e.cold = first_token_is_cold(row);
  e.known_client = row.is_public();
  e.disaggregated = row.disaggregated();
  if (e.disaggregated) e.load.clients = std::max(1.0, row.clients / row.decode_workers);
  e.ttft_s = row.ttft_s;
  e.tpot_s = row.tpot_s;
  if (!weights_fit(e.request)) return std::nullopt;
  return e;
}

}  // namespace

EndpointEstimate closed_form(const Endpoint& e, const HostCosts& host) {
  EndpointParts parts = endpoint_parts(e.request, e.load);
  // A model that predicts several tokens drafts with layers of its own: 1.5 of the model's a token.
  parts.draft_s =
      e.request.plan.speculate * 1.5 / parts.layers * (parts.decode_s + parts.decode_experts_s);
  HostCosts costs = host;
  if (e.disaggregated) {
    // Without prompts nothing interrupts the overlap of the host's work with the device's.
    parts.prompt_s = parts.prompt_experts_s = 0;
    costs.step = costs.layer = costs.sequence = 0;
  }
  return estimate_endpoint(parts, costs, e.load);
}

EndpointEstimate expected_times(const Endpoint& e) {
  EndpointEstimate times = closed_form(e, host_costs(e.request.stack, *e.request.model));
  constexpr double kClosedFormClients = 4;  // whose prompts rarely overlap: the closed form holds
  if (!e.disaggregated && e.request.plan.speculate == 0 && e.load.clients > kClosedFormClients) {
    times.ttft_s = simulate_endpoint(e.request, e.load).ttft_s;
  }
  return times;
}

std::vector<std::string> find_endpoint_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.find("e2e") == std::string::npos) continue;
    if (name.ends_with(".csv") || name.ends_with(".csv.gz")) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Endpoint> read_endpoints(const std::string& path, size_t& skipped,
                                     const std::function<void(const std::string&)>& complain) {
  CsvReader csv(path);
  for (const char* name : {"silicon_tpot_ms", "silicon_ttft_ms", "model_path", "system", "backend",
                           "concurrency", "isl", "osl", "tp_size"}) {
    if (csv.column(name) < 0) throw Error("{}: row 1: no column '{}'", path, name);
  }
  Names names;
  std::map<std::string, size_t> unknown;  // rows by what is wrong with a name
  std::vector<Endpoint> rows;
  while (csv.next()) {
    try {
      if (csv.fields() != csv.header().size()) throw BadField{"wrong number of fields"};
      std::optional<Endpoint> endpoint = endpoint_of(row_of(Row(csv)), names);
      if (endpoint) {
        rows.push_back(std::move(*endpoint));
      } else {
        ++skipped;
      }
    } catch (const BadField& bad) {
      complain(fmt::format("{}: row {}: {}", path, csv.line(), bad.why));
    } catch (const Error& error) {
      ++unknown[error.what()];
    }
  }
  for (const auto& [why, count] : unknown) {
    complain(fmt::format("{}: {} {}: {}", path, count, count == 1 ? "row" : "rows", why));
  }
  return rows;
}

}  // namespace ridge
