// Ranks for experiments: threads of this process, each confined to its share of the cores, that
// talk through shared memory as forked ranks do. They end with their object, so an interrupted
// experiment leaves no process and no memory behind.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/affinity.h"
#include "lab/lab_engine.h"
#include "measure/ranks/measure_collectives.h"
#include "ranks/rank_grid.h"
#include "ranks/shared_memory.h"

namespace ridge {

// How many ranks get a core of their own: 2, and 4 where there are as many.
std::vector<int> lab_rank_counts(const Lab& lab);

// Times collectives among ranks of which this thread is the first. Throws LabInterrupted.
std::vector<CollectiveTime> lab_collectives(Lab& lab, int ranks, const CollectiveOptions& options);

// The link among ranks, from all-gathers of five sizes, 4 B to 1 MiB.
RankLink lab_rank_link(Lab& lab, int ranks);

// A model that tensor-parallel ranks share, each with one thread.
class LabRankedModel {
 public:
  LabRankedModel(Weights whole, int ranks, RunnerOptions options);
  ~LabRankedModel();
  LabRankedModel(const LabRankedModel&) = delete;
  LabRankedModel& operator=(const LabRankedModel&) = delete;

  Runner& runner() { return *leader_; }

 private:
  AffinityScope restored_;
  std::vector<std::jthread> followers_;
  std::unique_ptr<Runner> leader_;
};

}  // namespace ridge
