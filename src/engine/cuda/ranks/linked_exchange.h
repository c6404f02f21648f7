// The exchange of a CUDA runner that is one rank of several.
#pragma once

#include <memory>

#include "engine/cuda/ranks/rank_exchange.h"
#include "ranks/rank_grid.h"

namespace ridge::cuda {

// Makes the device of rank `rank` of all the current one: the ranks of a host take its devices in
// turn. Throws Error where there is none.
void use_device_of(int rank);

// All ranks, together. `max_count`: floats of the largest step's residual.
std::unique_ptr<RankExchange> make_exchange(std::shared_ptr<RankLinks> links, size_t max_count);

}  // namespace ridge::cuda
