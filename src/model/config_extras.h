// What a config describes beside the language model's layers.
#pragma once

#include "model/config_build.h"

namespace ridge {

// Multi-token prediction layers, learned positions, per-layer embeddings.
void add_text_extras(Model& model, const ConfigContext& context);
// Vision and audio towers of a multimodal wrapper, estimated from their own dimensions.
void add_towers(Model& model, const Fields& outer);

}  // namespace ridge
