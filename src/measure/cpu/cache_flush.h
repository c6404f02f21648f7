// Taking memory out of all caches, so that reading it measures the memory, whatever the caches
// hold.
#pragma once

#include <cstddef>

namespace ridge {

// False where programs have no instruction for it.
bool can_flush_caches();
// Afterwards no cache of this machine has a line of these bytes.
void flush_from_caches(const void* data, size_t bytes);

}  // namespace ridge
