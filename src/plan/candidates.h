// What could serve the traffic: machines, layouts and formats.
#pragma once

#include <vector>

#include "predict/request.h"

namespace ridge {

// One request for each model, machine, stack and format that the options name, and for each layout:
// those that the options give, else tensor parallelism over 1, 2, 4 .. devices as far as the heads
// divide, with pipeline stages where the model does not fit one group otherwise, and for mixtures
// of experts also with the experts spread over the group. plan.dp is 1: a request is one replica.
// An empty machine takes every data-centre GPU of the atlas with a price, as nodes of 8.
// Throws Error for unknown names, and for more than `max_points` requests before the layouts.
std::vector<Request> plan_candidates(RequestOptions options,
                                     Sources sources = Sources::names_and_files,
                                     size_t max_points = kMaxSweepPoints);

// The machines of an empty --machine.
std::string priced_machines();

}  // namespace ridge
