// Random weights of a model that no file describes (experiments vary one dimension of it), and of
// ranks, which hold parts.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/weights/lazy_weights.h"
#include "engine/weights/weights.h"

namespace ridge {

// As random_weights() of a config.json with this content; `name` is shown.
Weights random_weights_of(const nlohmann::json& config, const std::string& name, Storage storage,
                          uint64_t seed, int threads);

// The same model in bf16 with all its matrices absent, so that the host holds none: a CUDA runner
// draws them on its device. No other runner takes them.
Weights undrawn_weights_of(const nlohmann::json& config, const std::string& name);

// Made part by part, with the bits that random_weights() has there.
// So many hosts share the matrices. Throws Error where a host's share is more than the free memory.
LazyWeights lazy_random_weights(const std::string& name, Storage storage, uint64_t seed,
                                int threads, int hosts);

}  // namespace ridge
