// Mixture of experts: how many distinct experts a batch activates, how unevenly, and the GEMMs of
// the experts on one rank.
#pragma once

#include "cost/matmul.h"

namespace ridge {

struct Routing {
  double experts = 0, top_k = 0;
  double skew = 0;  // popularity of the r-th expert falls as r^-skew; 0: uniform
  bool operator==(const Routing&) const = default;
};

// Expected number of distinct experts that `tokens` tokens choose. Uniform:
// E (1 - (1 - k/E)^T); with skew each expert's own probability is used.
double distinct_experts(const Routing& routing, double tokens);

// Load of the busiest of `ranks` ranks over the mean, when experts are dealt in order of
// popularity (round robin) and tokens fall at random: sampling noise of a maximum of Gaussians,
// sqrt(2 ln ranks / mean), plus the skew of the first rank.
double busiest_rank(const Routing& routing, double tokens, double ranks);

// The routed experts of one layer on one rank: routing, gate and up, activation, down.
struct ExpertBlock {
  double tokens = 1;             // of all ranks that share the experts
  double hidden = 1, inter = 1;  // columns of the hidden state, and of one expert on this rank
  double experts = 1, top_k = 1;
  double ranks = 1;     // the experts are spread over
  bool gated = true;    // gate and up, or up alone
  bool skewed = false;  // the load is a power law's
  DType math = DType::bf16;
  double weight_bits = 16;  // per weight, scales included
  double in_bytes = 2;      // per input activation
};

// The block's two GEMMs where `rows` (token, expert) pairs fall on this rank. Weights are one
// expert's.
MatmulShape expert_up(const ExpertBlock& block, double rows);
MatmulShape expert_down(const ExpertBlock& block, double rows);

}  // namespace ridge
