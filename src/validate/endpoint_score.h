// Scores the endpoint estimate against measured endpoints.
#pragma once

#include <functional>
#include <string>

#include "validate/score.h"

namespace ridge {

// Adds groups and totals "e2e_tpot" (all loads) and "e2e_ttft" (at most 4 clients: beyond that the
// first token measures how the benchmark's requests arrive; those rows are "e2e_ttft_loaded").
// Rows that spent more time in the queue than in decoding stand apart: the limit on running
// sequences that put them there is not recorded.
void score_endpoints(const std::string& folder, Scoreboard& board,
                     const std::function<void(const std::string&)>& complain);

}  // namespace ridge
