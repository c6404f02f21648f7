// The machine that a run is held against. Where ranks share the model, a device of the system is
// what one rank has.
#pragma once

#include "engine/runner/runner.h"
#include "machine/machine.h"
#include "roofline/stack.h"

namespace ridge {

// This CPU as measured (a file of `ridge measure`, else the quick probe). Where plain reads of the
// runner's own weights are faster than that, the level they lie in is that fast.
System cpu_roof_system(Runner& runner);
// The first GPU as the atlas describes it. Throws Error where there is none.
System cuda_system();
System cuda_roof_system(Runner& runner);

// A system of so many ranks, each with its part of the machine: `sharing` ranks share one, which
// may be fewer than there are. Cores and peaks are divided among these. Bandwidth is divided among
// the ranks of a stage, because stages take turns. So is the capacity of shared caches, counted for
// the layers of all stages, as a lowered step has them.
System with_ranks(System machine, const Plan& plan, const RankPlacement& ranks, int sharing);

// The same with the level that holds most of the weights at such a bandwidth that plain reads of
// them have exactly `rate` (bytes/s of all ranks together; 0 changes nothing).
System with_read_rate(System system, const Runner& runner, double rate);

// The stack that describes this engine there.
Stack engine_stack(const System& system);

}  // namespace ridge
