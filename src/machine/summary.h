// One machine in a line of a list.
#pragma once

#include <optional>

#include "base/json.h"
#include "machine/machine.h"

namespace ridge {

// The format a machine is known by: bf16, else fp16, else fp32; nullopt when it has none of them.
std::optional<DType> headline_dtype(const Machine& machine);

// What tiles are made of unless said: fp16, else the above.
DType tile_dtype(const Machine& machine);

// {name, title, kind, year, dtype, peak, capacity, bandwidth, ridge, link, power}
Json machine_summary(const Machine& machine);

}  // namespace ridge
