// How the ranks of one model are arranged.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ranks/communicator.h"

namespace ridge {

// `tp` ranks cut every layer among themselves (tensor parallel); `pp` such groups, the stages, hold
// one run of layers each (pipeline parallel). Rank r is number r % tp of stage r / tp.
struct RankGrid {
  int tp = 1, pp = 1;
  // Experts are given to the ranks of a stage whole (expert parallel), not each cut into tp parts.
  bool whole_experts = false;

  int ranks() const { return tp * pp; }
  int stage_of(int rank) const { return rank / tp; }
  int part_of(int rank) const { return rank % tp; }
};

// One of the hosts that ranks run on.
struct RankHost {
  int ranks = 0;
  double free_bytes = 0;  // of its memory, when the ranks were started
};

// The place of one rank and what it talks through.
struct RankLinks {
  RankLinks() = default;
  RankLinks(const RankLinks&) = delete;
  RankLinks& operator=(const RankLinks&) = delete;
  std::shared_ptr<void> group;  // the processes that a leader started: they end after the links
  std::function<std::string()> lost;  // of a leader: why one of these does not run; "": all run
  RankGrid grid;
  std::vector<RankHost> hosts;          // of ranks under MPI; empty: all ranks are on this one
  std::unique_ptr<Communicator> world;  // all ranks
  std::unique_ptr<Communicator> peers;  // the ranks of this stage
  // The leader has ended the run, and every rank knows: they free together what they share.
  bool ending = false;

  // Processes that still wait for something end now.
  ~RankLinks() {
    if (group) world->fail("the leader has ended");
  }

  int rank() const { return world->rank(); }
  int stage() const { return grid.stage_of(rank()); }
  bool is_first_stage() const { return stage() == 0; }
  bool is_last_stage() const { return stage() == grid.pp - 1; }
  int first_of_stage() const { return stage() * grid.tp; }
  // The rank with the same part in the stage before and after.
  int previous() const { return rank() - grid.tp; }
  int next() const { return rank() + grid.tp; }
};

}  // namespace ridge
