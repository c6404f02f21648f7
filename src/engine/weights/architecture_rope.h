// Rotary frequencies as Hugging Face computes them (transformers, modeling_rope_utils.py).
#pragma once

#include "engine/weights/architecture.h"
#include "model/config_fields.h"

namespace ridge {

// `scaling` is a config's rope_scaling or rope_parameters object (empty: none); `theta` is the base
// unless `scaling` sets another. Throws Error for types that are not supported (dynamic, longrope).
Rope make_rope(const Fields& scaling, double theta, int head_dim, double max_context);

}  // namespace ridge
