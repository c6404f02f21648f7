// Reading models: built-in names, Hugging Face configs, GGUF and safetensors headers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace ridge {

// A config.json, a folder holding one (with or without *.safetensors, whose headers then give exact
// bytes), a *.gguf or *.safetensors file; a model of the Hugging Face cache ("org/name", see
// hub/hub_cache.h); a built-in name ("llama-3-70b", forgiving). The first of these that is there.
// Throws Error: unknown names suggest the nearest, unknown architectures name the field.
Model find_model(std::string_view name_or_path);

std::vector<std::string> builtin_model_names();

// A Hugging Face config, `where` for messages. Throws Error where sizes are missing or not sane;
// what only keeps the engine from running the model is in Model::not_executed.
Model read_config(const nlohmann::json& config, std::string_view where);
Model model_from_gguf(const std::string& path);
Model model_from_safetensors(const std::string& path);  // file or folder

// Adds the eos and bos ids that a generation_config.json lists.
void add_generation_config(Execution& execution, const nlohmann::json& config,
                           const std::string& where);

}  // namespace ridge
