// The settings of a vLLM run that a recorder saved beside its logs of requests: JSON with the
// engine's arguments, the size of the KV cache and the device.
#include <algorithm>

#include "base/error.h"
#include "diagnose/readers/engine_log.h"
#include "diagnose/readers/json_records.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

using nlohmann::json;

EngineArguments arguments_of_json(const json& fields) {
  EngineArguments arguments;
  for (const auto& [key, value] : fields.items()) {
    if (value.is_string()) arguments.emplace(key, value.get<std::string>());
    if (value.is_number() || value.is_boolean()) arguments.emplace(key, value.dump());
  }
  return arguments;
}

}  // namespace

std::optional<EvidenceFile> read_run_settings(std::string_view text, const std::string& name) {
  if (!begins_json(text) || !has_text(text, "\"engine_kwargs\"")) return std::nullopt;
  EvidenceFile file;
  file.path = name;
  file.kind = "settings of a vLLM run";
  file.window = "none: settings alone";
  bool found = false;
  for_json_records(
      text,
      [&](const json& object, size_t) {
        const json* arguments = json_at(object, {"engine_kwargs"});
        if (found || arguments == nullptr || !arguments->is_object()) return;
        found = true;
        file.setup.engine = "vllm";
        file.setup.version = json_text(object, "vllm_version");
        file.setup.model = json_text(object, "model");
        if (const json* hardware = json_at(object, {"hardware"})) {
          file.setup.device = json_text(*hardware, "device_name");
          const auto devices = json_number(*hardware, "device_count");
          if (devices && *devices >= 1 && *devices <= double(kMostEngines))
            file.setup.devices = int(*devices);
        }
        const auto tokens = json_number_at(object, {"kv_cache", "num_kv_tokens"});
        if (tokens && *tokens > 0) {
          file.add(Quantity::kv_tokens, *tokens, Trust::window, "kv_cache.num_kv_tokens");
        }
        add_log_arguments(arguments_of_json(*arguments), file);
      },
      file.notes);
  if (!found) throw Error("{}: engine_kwargs are not an object", name);
  return file;
}

}  // namespace ridge
