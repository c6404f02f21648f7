// Random weights of a model that no file describes: experiments vary one dimension of it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/weights/weights.h"

namespace ridge {

// As random_weights() of a config.json with this content; `name` is shown.
Weights random_weights_of(const nlohmann::json& config, const std::string& name, Storage storage,
                          uint64_t seed, int threads);

}  // namespace ridge
