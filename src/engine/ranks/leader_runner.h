// A runner whose model several ranks share. Rank 0 leads: it takes the calls of a Runner,
// broadcasts them (rank_calls.h) and runs its own part. The others follow (follower.h).
#pragma once

#include <memory>

#include "engine/runner/runner.h"
#include "ranks/rank_grid.h"

namespace ridge {

// `local` runs this rank's part of `whole`, with the same links in its options. Called on rank 0;
// the destructor ends the others' follow().
std::unique_ptr<Runner> make_leader_runner(Weights whole, std::unique_ptr<Runner> local,
                                           std::shared_ptr<RankLinks> links);

}  // namespace ridge
