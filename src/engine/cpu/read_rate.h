// Bandwidth of plain reads over some memory: the ceiling of any kernel that streams it.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_team.h"

namespace ridge::cpu {

// Bytes/s of one pass over all parts. Each part is divided among all threads as in the GEMMs.
double read_rate(ThreadTeam& team, std::span<const std::span<const std::byte>> parts);

}  // namespace ridge::cpu
