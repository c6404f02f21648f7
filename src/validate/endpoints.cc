#include "validate/endpoints.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "machine/atlas.h"
#include "model/read.h"
#include "validate/csv.h"
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

bool is_latent(const Model& model) {
  return model.groups.front().layer.mixer.kind == MixerKind::mla;
}

bool has_experts(const Model& model) {
  return std::any_of(model.groups.begin(), model.groups.end(),
                     [](const LayerGroup& g) { return g.layer.has_moe(); });
}

// Checkpoints that come quantized keep their own format unless the row says a narrower one.
void set_precision(Request& r, const std::string& mode) {
  const bool own = r.model->family == "gpt_oss";
  if (mode == "nvfp4" && !own) r.plan.weights = format_from_name("nvfp4");
  if (mode == "fp8") r.plan.weights = format_from_name("fp8");
  if (mode == "fp8_block") r.plan.weights = format_from_name("fp8-block");
  if (own) r.plan.weights.reset();
  // Latent caches are small already and stay in 16 bits on these stacks.
  if (!mode.empty() && !own && !is_latent(*r.model)) r.plan.kv = format_from_name("fp8");
}

// Weights that exceed the devices a row names show that its columns do not tell the layout.
bool weights_fit(const Request& r) {
  const Maybe capacity = r.system.device.memory().total_capacity();
  return !capacity || make_rank(*r.model, r.plan).weight_bytes < *capacity;
}

Endpoint endpoint_of(const Row& row, Names& names) {
  Endpoint e;
  e.gpu = row.text("system");
  e.framework = row.text("backend");
  const std::string mode = row.text("gemm_quant_mode");
  e.dtype = mode.empty() ? "bfloat16" : mode;
  e.request.model = names.model(plain_model_name(row.text("model_path")));
  e.request.system.device = names.machine(machine_of_folder(e.gpu));
  e.request.system.devices_per_node = 8;
  e.request.stack = names.stack(e.framework);
  set_precision(e.request, mode);
  e.request.plan.tp = static_cast<int>(row.number("tp_size", 1));
  if (has_experts(*e.request.model)) {
    e.request.plan.ep = static_cast<int>(row.number("moe_ep_size", 1));
  }
  e.load.clients = row.number("concurrency", 0);
  e.load.prompt = row.number("isl", 0);
  e.load.output = row.number("osl", 0);
  e.ttft_s = row.number("silicon_ttft_ms", 0) / 1e3;
  e.tpot_s = row.number("silicon_tpot_ms", 0) / 1e3;
  if (e.load.prompt < 1 || e.load.output < 1 || e.tpot_s <= 0 || e.ttft_s <= 0) {
    throw BadField{"prompt, output and times must be above 0"};
  }
  return e;
}

}  // namespace

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
      const Row row(csv);
      const bool aggregated = row.text("mode").empty() || row.text("mode") == "agg";
      const bool plain = row.number("tp_size", 1) <= 8 && row.number("pp_size", 1) <= 1 &&
                         row.number("attention_dp_size", 1) <= 1 &&
                         row.number("moe_ep_size", 1) <= row.number("tp_size", 1);
      if (!aggregated || !plain || row.number("concurrency", 0) < 1) {
        ++skipped;
        continue;
      }
      Endpoint endpoint = endpoint_of(row, names);
      if (!weights_fit(endpoint.request)) {
        ++skipped;
        continue;
      }
      rows.push_back(std::move(endpoint));
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
