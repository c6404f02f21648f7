// Plans as the tests write them.
#pragma once

#include "step/plan.h"

namespace ridge {

struct Degrees {
  int tp = 1, pp = 1, dp = 1, ep = 1;
};

inline Plan parallel(const Degrees& d) {
  Plan plan;
  plan.tp = d.tp;
  plan.pp = d.pp;
  plan.dp = d.dp;
  plan.ep = d.ep;
  return plan;
}

}  // namespace ridge
