// Exchanges of figures that every rank of a model calls at the same place, leader and followers.
#pragma once

#include "engine/runner/runner.h"
#include "ranks/rank_grid.h"

namespace ridge {

// The sum of what the ranks pass. The first exchange of all: it has no deadline, because some ranks
// may load for minutes after others are ready.
double sum_when_loaded(Communicator& world, double of_this_rank);

// Bytes/s at which the ranks read their weights: those of a stage side by side, the stages one
// after the other, as in a step.
double read_rate_of_all(RankLinks& links, Runner& local);

}  // namespace ridge
