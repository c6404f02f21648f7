// Reading a file past the page cache: the level a model is loaded from.
#pragma once

#include <string>

#include "measure/reading.h"

namespace ridge {

// Writes a scratch file into `folder`, reads it back with O_DIRECT from several threads, removes
// it. Throws Error with the reason when that cannot be done there (tmpfs, no space, no right).
Reading measure_disk(const std::string& folder, double bytes, int passes);

}  // namespace ridge
