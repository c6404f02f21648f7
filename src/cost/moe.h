// Mixture of experts: how many distinct experts a batch wakes, and how unevenly.
#pragma once

namespace ridge {

struct Routing {
  double experts = 0, top_k = 0;
  double skew = 0;  // popularity of the r-th expert falls as r^-skew; 0: uniform
};

// Expected number of distinct experts that `tokens` tokens choose. Uniform:
// E (1 - (1 - k/E)^T); with skew each expert's own probability is used.
double distinct_experts(const Routing& routing, double tokens);

// Load of the busiest of `ranks` ranks over the mean, when experts are dealt in order of
// popularity (round robin) and tokens fall at random: sampling noise of a maximum of Gaussians,
// sqrt(2 ln ranks / mean), plus the skew of the first rank.
double busiest_rank(const Routing& routing, double tokens, double ranks);

}  // namespace ridge
