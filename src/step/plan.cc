#include "step/plan.h"

namespace ridge {

double tokens_per_step(const Plan& plan) {
  double sum = 1, power = 1;
  for (int i = 0; i < plan.speculate; ++i) sum += power *= plan.acceptance;
  return sum;
}

}  // namespace ridge
