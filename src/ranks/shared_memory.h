// Ranks on one host that talk through shared memory.
//
// A region is made before the ranks exist: processes inherit it by fork(), threads by sharing the
// pointer. Each rank has a slot that all read. A collective is: fill the own slot, wait for all,
// read the others' slots. There are two sets of slots, used in turn, so that a slow reader of one
// collective is not overtaken by the next: whoever begins the one after it has waited for all in
// between.
#pragma once

#include <functional>
#include <memory>

#include "ranks/communicator.h"

namespace ridge {

class SharedRegion;

// Throws Error where the memory cannot be had.
std::shared_ptr<SharedRegion> make_shared_region(int ranks);

// The region as seen by one rank. `lost` is called now and then while a call waits, and returns why
// the group cannot go on ("rank 2 was killed by signal 9"), or nothing: the leader looks after the
// processes that it started. In messages the ranks are numbered from `first`.
std::unique_ptr<Communicator> join_shared_region(std::shared_ptr<SharedRegion> region, int rank,
                                                 std::function<std::string()> lost = {},
                                                 int first = 0);

}  // namespace ridge
