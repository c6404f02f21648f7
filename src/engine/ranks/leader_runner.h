// A runner whose model several ranks share. Rank 0 leads: it takes the calls of a Runner, tells the
// others, and runs its own part with them. The others follow.
#pragma once

#include <functional>
#include <memory>

#include "engine/ranks/rank_grid.h"
#include "engine/runner.h"

namespace ridge {

// `local` runs this rank's part of `whole`, with the same links in its options. Called on rank 0;
// the destructor ends the others' follow().
std::unique_ptr<Runner> make_leader_runner(Weights whole, std::unique_ptr<Runner> local,
                                           std::shared_ptr<RankLinks> links);

// On every other rank: runs what the leader says until it ends.
void follow(Runner& local, RankLinks& links);

}  // namespace ridge
