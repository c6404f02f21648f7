// A clock whose figures can be worked out by hand.
#pragma once

#include <limits>

#include "predict/step_clock.h"

namespace ridge {

class PlanTestClock : public StepClock {
 public:
  double step(double decodes, double context,
              std::span<const PromptChunk> chunks = {}) const override {
    double fresh = 0;
    for (const PromptChunk& chunk : chunks) fresh += chunk.fresh;
    return 0.01 + 1e-4 * decodes + 1e-8 * context + 1e-5 * fresh;
  }
  double linear_until(double, double) const override {
    return std::numeric_limits<double>::infinity();
  }
  double first_token_overhead() const override { return 0.002; }
};

}  // namespace ridge
