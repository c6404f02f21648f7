// The ranks that a leader_runner.h leads.
#pragma once

#include "engine/runner/runner.h"
#include "ranks/rank_grid.h"

namespace ridge {

// On every rank but 0: runs the leader's calls on this rank's part of the model until the leader
// ends.
void follow(Runner& local, RankLinks& links);

}  // namespace ridge
