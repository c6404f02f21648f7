// What `ridge load` prints for a person.
#pragma once

#include <optional>
#include <string>

#include "load/summary.h"

namespace ridge {

// Throughput, the table of latencies, their histogram, errors, and the server's steps beside their
// predictions where it told them.
std::string load_text(const LoadRecord& record, const LoadSummary& summary,
                      const std::optional<ServerTotals>& server);

}  // namespace ridge
