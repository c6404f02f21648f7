// Fits one group's parameters.
#pragma once

#include "fit/dataset.h"

namespace ridge {

struct FitEffort {
  int evaluations = 4000;  // of the final search; half as many again choose the structure
  size_t rows = 1500;      // used of each group, evenly picked
};

// Parameters that minimise the mean error over the rows (mean of relative and logarithmic error,
// capped), with a weak pull towards the defaults so that numbers the rows do not determine stay
// plausible. Deterministic.
KernelParams fit_params(KernelKind family, const std::vector<const FitRow*>& rows,
                        const std::vector<GpuTraits>& gpus, const FitEffort& effort);

}  // namespace ridge
