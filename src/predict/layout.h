// How a model is spread over the devices of a machine where the plan does not say it.
#pragma once

#include <string>

#include "predict/predict.h"

namespace ridge {

// The heads of the first layer group that tensor parallelism of this degree does not cut evenly; 0:
// it cuts all of them. Engines refuse such degrees.
int uneven_heads(const Model& model, int tp);

// Tries the layouts of tp x pp x dp, for models with experts also with the experts spread over all
// ranks of a stage, and takes the one with the most tokens/s at the request's load that fits the
// memory. Where none fits, the one that holds the least per device. Fills request.layouts.
// `keep_ep`: the plan's ep stays.
void choose_layout(Request& request, bool keep_ep = false);

std::string layout_words(const ParallelLayout& layout);  // "tp 4, dp 2"; "one device"
ParallelLayout layout_of(const Plan& plan);

}  // namespace ridge
