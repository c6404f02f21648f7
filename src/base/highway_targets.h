// Runs a file's code for each instruction set that Highway compiled it for.
#pragma once

#include <hwy/targets.h>

namespace ridge {

// Calls body(target) for every target of `compiled` that this CPU has, best first, while Highway
// dispatches to that target. Where it has none, `baseline` is called: Highway 1.0 asks for AES with
// NEON, which no kernel here uses and which a Raspberry Pi 4 lacks. A caller passes its own
// HWY_TARGETS and HWY_STATIC_TARGET.
template <typename Body>
void for_each_target(int64_t compiled, int64_t baseline, const Body& body) {
  int64_t targets = hwy::SupportedTargets() & compiled;
  if (targets == 0) targets = baseline;
  for (; targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace ridge
