// A derivative-free minimiser for a handful of parameters and a rough objective.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ridge {

// CMA-ES (Hansen 2016, tutorial) with a Cholesky factor: a cloud of candidates whose shape and
// size follow the best half. Deterministic for a seed. Minimises over the unit box; candidates
// outside are reflected. Returns the best candidate seen.
struct Optimum {
  std::vector<double> x;
  double value = 0;
};
Optimum minimise(const std::function<double(const std::vector<double>&)>& objective,
                 std::vector<double> start, double step, int evaluations, uint64_t seed);

}  // namespace ridge
