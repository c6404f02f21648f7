// The models compiled into the program: their descriptions in atlas/models.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "model/model.h"

namespace ridge {

// What the model's publisher says, to hold our counts against.
struct Published {
  double parameters = 0;
  double active_parameters = 0;  // 0: not given (dense models)
  std::string source;
};

// "meta-llama/Llama-3.1-8B-Instruct" -> "llama-3-1-8b": organisation and tuning suffixes dropped,
// case and separators folded. Two names are the same model when this agrees.
std::string fold_model_name(std::string_view name);

// Nullopt where no built-in model has this name.
std::optional<Model> builtin_model(std::string_view name);
std::optional<Published> published_counts(std::string_view name);
// Where a built-in model is on Hugging Face, as an engine is started with it: "Qwen/Qwen3-8B".
// Empty: the atlas does not know.
std::string model_repository(std::string_view name);
// Its Hugging Face config, as the atlas has it; null where there is no such model.
nlohmann::json builtin_config(std::string_view name);

}  // namespace ridge
