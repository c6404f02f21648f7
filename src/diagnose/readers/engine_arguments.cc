#include "diagnose/readers/engine_arguments.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/dtype.h"
#include "base/error.h"
#include "diagnose/readers/json_records.h"

namespace ridge {
namespace {

using Q = Quantity;

class ArgumentLookup {
 public:
  explicit ArgumentLookup(const EngineArguments& arguments) : arguments_(arguments) {}

  // The first of the names that has a value; Python's None is none.
  std::string_view text(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto found = arguments_.find(name);
      if (found == arguments_.end()) continue;
      const std::string& value = found->second;
      if (!value.empty() && value != "None" && value != "null") return value;
    }
    return {};
  }
  std::optional<double> number(std::initializer_list<std::string_view> names) const {
    const std::optional<double> value = leading_number(text(names));
    return value && *value > 0 ? value : std::nullopt;
  }
  std::optional<bool> flag(std::string_view name) const {
    const std::string_view value = text({name});
    if (value == "True" || value == "true") return true;
    if (value == "False" || value == "false") return false;
    return std::nullopt;
  }

 private:
  const EngineArguments& arguments_;
};

void set_parallel_size(std::optional<int>& size, const std::optional<double>& value) {
  if (!size && value && *value <= double(kMostEngines)) size = static_cast<int>(*value);
}

bool is_argument_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The value that begins at `i`; `i` moves past it. Commas inside brackets belong to it.
std::string take_argument_value(std::string_view text, size_t& i) {
  if (i < text.size() && (text[i] == '\'' || text[i] == '"')) {
    const size_t end = std::min(text.find(text[i], i + 1), text.size());
    std::string value(text.substr(i + 1, end - i - 1));
    i = end;
    return value;
  }
  const size_t begin = i;
  int depth = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}') && --depth < 0) break;
    if (depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\r')) break;
  }
  return std::string(text.substr(begin, std::min<size_t>(i - begin, 4096)));
}

}  // namespace

std::string weight_format(std::string_view name) {
  std::string lower(name.substr(0, 64));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.starts_with("torch.")) lower.erase(0, 6);
  constexpr std::pair<std::string_view, const char*> kMethods[] = {
      {"awq", "awq"},           {"gptq", "gptq"},
      {"auto_gptq", "gptq"},    {"modelopt_fp4", "nvfp4"},
      {"nvfp4", "nvfp4"},       {"petit_nvfp4", "nvfp4"},
      {"mxfp4", "mxfp4"},       {"modelopt", "fp8"},
      {"w8a8_fp8", "fp8"},      {"fbgemm_fp8", "fp8"},
      {"ptpc_fp8", "fp8"},      {"fp8", "fp8"},
      {"w8a8_int8", "int8"},    {"int8", "int8"},
      {"experts_int8", "int8"}, {"bitsandbytes", "nf4"},
      {"moe_wna16", "int4"}};
  for (const auto& [prefix, format] : kMethods) {
    if (lower.starts_with(prefix)) return format;
  }
  try {
    return format_from_name(lower).name;
  } catch (const Error&) {
    return {};
  }
}

void apply_engine_arguments(const EngineArguments& arguments, RunSetup& setup,
                            const std::function<void(Quantity, double, std::string_view)>& add) {
  const ArgumentLookup get(arguments);
  const auto fill = [](std::string& field, std::string_view value) {
    if (field.empty()) field = std::string(value.substr(0, 256));
  };
  fill(setup.model, get.text({"model_path", "model", "model_tag", "model_id"}));
  fill(setup.version, get.text({"version"}));
  const std::string_view method = get.text({"quantization"});
  fill(setup.weights, weight_format(method.empty() ? get.text({"dtype"}) : method));
  const std::string_view kv = get.text({"kv_cache_dtype"});
  if (kv != "auto") fill(setup.kv, weight_format(kv));
  set_parallel_size(setup.tp, get.number({"tensor_parallel_size", "tp_size"}));
  set_parallel_size(setup.pp, get.number({"pipeline_parallel_size", "pp_size"}));
  set_parallel_size(setup.dp, get.number({"data_parallel_size", "dp_size"}));
  set_parallel_size(setup.ep, get.number({"ep_size", "expert_parallel_size"}));
  if (!setup.eager) {
    setup.eager = get.flag("enforce_eager");
    if (!setup.eager) setup.eager = get.flag("disable_cuda_graph");
  }
  if (!setup.prefix_caching) {
    setup.prefix_caching = get.flag("enable_prefix_caching");
    if (const auto off = get.flag("disable_radix_cache")) setup.prefix_caching = !*off;
  }
  const auto limit = [&](Quantity q, std::initializer_list<std::string_view> names,
                         std::string_view origin) {
    if (const auto value = get.number(names)) add(q, *value, origin);
  };
  limit(Q::max_running, {"max_num_seqs", "max_running_requests"}, "the limit of sequences");
  limit(Q::graph_max, {"cuda_graph_max_bs", "max_cudagraph_capture_size", "max_capture_size"},
        "the largest CUDA graph");
  limit(Q::kv_tokens, {"max_total_num_tokens"}, "max_total_num_tokens");
}

EngineArguments parse_arguments(std::string_view text) {
  EngineArguments arguments;
  for (size_t i = text.find_first_of("=:"); i < text.size(); i = text.find_first_of("=:", i)) {
    // name=value, 'name': value and "name": value
    size_t end = i;
    if (text[i] == ':') {
      const bool quoted = i > 0 && (text[i - 1] == '\'' || text[i - 1] == '"');
      if (!quoted) {
        ++i;
        continue;
      }
      --end;
    }
    size_t begin = end;
    while (begin > 0 && is_argument_character(text[begin - 1])) --begin;
    const std::string name(text.substr(begin, std::min<size_t>(end - begin, 64)));
    ++i;
    if (i < text.size() && text[i] == ' ') ++i;
    if (name.empty() || (i < text.size() && text[i] == '=')) continue;
    arguments.emplace(name, take_argument_value(text, i));
  }
  return arguments;
}

}  // namespace ridge
