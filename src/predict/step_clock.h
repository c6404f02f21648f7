// How long a step of an endpoint takes, as the simulated runner asks it.
#pragma once

#include <span>

namespace ridge {

// Prompt tokens of one sequence in a step.
struct PromptChunk {
  double fresh = 0;  // tokens computed
  double past = 0;   // tokens before them whose keys and values are in the cache
};

class StepClock {
 public:
  virtual ~StepClock() = default;

  // Seconds from the start of a step to the start of the next one, host work included, on one
  // replica: `decodes` sequences draw one token each and hold `context` tokens together.
  virtual double step(double decodes, double context,
                      std::span<const PromptChunk> chunks = {}) const = 0;
  // A step without prompt tokens is linear in its context from `context` up to this one.
  virtual double linear_until(double decodes, double context) const = 0;
  // Seconds from a request's arrival to where it can be scheduled, and from the end of a step to
  // where its client sees the token, together.
  virtual double first_token_overhead() const = 0;
};

}  // namespace ridge
