// The machine that a run is held against.
#pragma once

#include "engine/runner.h"
#include "machine/machine.h"
#include "roofline/stack.h"

namespace ridge {

// This CPU as measured (a file of `ridge measure`, else the quick probe). Where plain reads of the
// runner's own weights are faster than that, the level they lie in is that fast.
System cpu_roof_system(Runner& runner);
// The first GPU as the atlas describes it. Throws Error where there is none.
System cuda_system();

// The same with the level that holds most of the weights at such a bandwidth that plain reads of
// them have exactly `rate` (bytes/s; 0 changes nothing).
System with_read_rate(System system, const Runner& runner, double rate);

// The stack that describes this engine there.
Stack engine_stack(const System& system);

}  // namespace ridge
