// How fast plain reads stream some memory: the ceiling of whatever computes on it.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_team.h"

namespace ridge::cpu {

// Bytes/s of one pass over all parts, each shared by all threads as the products share it.
double read_rate(ThreadTeam& team, std::span<const std::span<const std::byte>> parts);

}  // namespace ridge::cpu
