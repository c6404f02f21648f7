// Models as JSON, for the command line and the server.
#pragma once

#include "base/json.h"
#include "model/model.h"

namespace ridge {

// {name, title, family, parameters, active_parameters, weight_bytes, kv_bytes_per_token, layers,
// max_context}
Json model_summary(const Model& model);

// The summary and hidden, vocab, layer_groups, parts, formats, kv, extras, notes and published.
Json model_details(const Model& model);

}  // namespace ridge
