// The exchange of a CUDA runner that is one rank of several.
#pragma once

#include <memory>
#include <string_view>

#include "engine/cuda/ranks/rank_exchange.h"
#include "ranks/rank_grid.h"

namespace ridge::cuda {

// What is said wherever a model may run on several GPUs.
inline constexpr std::string_view kSeveralGpusNote =
    "ranks on several GPUs: not yet run on more than one";
// Whether these ranks have more than one GPU.
bool on_several_gpus(const RankLinks& links);

// Makes the device of rank `rank` of all the current one: the ranks of a host take its devices in
// turn. Throws Error where there is none.
void use_device_of(int rank);

// All ranks, together. `max_count`: floats of the largest step's residual.
std::unique_ptr<RankExchange> make_exchange(std::shared_ptr<RankLinks> links, size_t max_count);

}  // namespace ridge::cuda
