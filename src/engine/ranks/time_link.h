// The link between the ranks of a run, timed among them.
#pragma once

#include "machine/machine.h"
#include "ranks/rank_grid.h"

namespace ridge {

int most_ranks_of_a_host(const RankLinks& links);

// All ranks call it, between two steps. The ranks of a stage time their all-gathers, all stages at
// the same time; where a stage has one rank, all ranks do. Takes about 0.1 s, over MPI 1 s.
Link time_link(RankLinks& links);

}  // namespace ridge
