// How the ranks of one model are arranged.
#pragma once

#include <functional>
#include <memory>
#include <string>

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

// The place of one rank and what it talks through.
struct RankLinks {
  RankLinks() = default;
  RankLinks(const RankLinks&) = delete;
  RankLinks& operator=(const RankLinks&) = delete;
  std::shared_ptr<void> group;  // the processes that a leader started: they end after the links
  std::function<std::string()> lost;  // of a leader: why one of these does not run; "": all run
  RankGrid grid;
  std::unique_ptr<Communicator> world;  // all ranks
  std::unique_ptr<Communicator> peers;  // the ranks of this stage

  // Processes that still wait for something end now.
  ~RankLinks() {
    if (group) world->fail("the leader has ended");
  }

  int rank() const { return world->rank(); }
  int stage() const { return grid.stage_of(rank()); }
  bool is_first_stage() const { return stage() == 0; }
  bool is_last_stage() const { return stage() == grid.pp - 1; }
  // The rank with the same part in the stage before and after.
  int previous() const { return rank() - grid.tp; }
  int next() const { return rank() + grid.tp; }
};

}  // namespace ridge
