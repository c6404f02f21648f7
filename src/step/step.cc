#include "step/step.h"

#include <algorithm>
#include <cmath>

namespace ridge {

std::vector<Sequences> prefill_steps(const Plan& plan, double prompt, double count) {
  const double cached = std::min(std::floor(prompt * plan.prefix_hit), prompt - 1);
  const double chunk = plan.chunk > 0 ? plan.chunk : prompt;
  std::vector<Sequences> steps;
  for (double done = cached; done < prompt; done += chunk) {
    const double fresh = std::min(chunk, prompt - done);
    const bool last = done + fresh >= prompt;
    steps.push_back({count, fresh, done, last ? 1.0 : 0.0});
  }
  return steps;
}

}  // namespace ridge
