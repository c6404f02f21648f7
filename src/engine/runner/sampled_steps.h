// The results of Runner::sample() until they are fetched, of runners on the host.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner/runner.h"

namespace ridge {

class SampledSteps {
 public:
  explicit SampledSteps(int most_rows);  // of one step; allocates for all of them

  void begin_step() { sampled_ = false; }
  // Room for the results of the last step's rows. Throws Error where too many were not fetched, or
  // where `requests` is not the number of `rows`.
  std::span<TopLogits> sample(size_t requests, int rows);
  std::span<const TopLogits> fetch();
  // The token id of an input: given directly, or sampled_row() of the step before.
  Token token_id(Token token) const;

 private:
  struct Step {
    std::vector<TopLogits> rows;
    int count = 0;
  };
  // One more than steps in flight: the rows fetched last stay valid until the next fetch.
  std::array<Step, Runner::kMaxStepsInFlight + 1> steps_;
  uint64_t samples_ = 0, fetches_ = 0;  // calls so far; call n uses steps_[n % size]
  bool sampled_ = false;                // whether the last step was
};

}  // namespace ridge
