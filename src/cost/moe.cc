#include "cost/moe.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

namespace ridge {
namespace {

// Probability that a token picks expert r, for all r; sums to top_k, each at most 1. Mass above 1
// is given back to the others in proportion until none exceeds it.
std::vector<double> pick_probabilities(const Routing& routing) {
  const int n = static_cast<int>(routing.experts);
  std::vector<double> weight(n), pick(n, 0.0);
  for (int r = 0; r < n; ++r) weight[r] = std::pow(r + 1.0, -routing.skew);
  double left = routing.top_k;
  int first = 0;  // experts before this one are always picked
  while (first < n) {
    double sum = 0;
    for (int r = first; r < n; ++r) sum += weight[r];
    if (left * weight[first] / sum < 1) {
      for (int r = first; r < n; ++r) pick[r] = left * weight[r] / sum;
      break;
    }
    pick[first++] = 1;
    left -= 1;
  }
  return pick;
}

// A sweep asks for the same model's experts again and again, each time for few numbers of tokens:
// the powers would be most of its time. One routing is remembered, on each thread.
struct RememberedRouting {
  Routing routing;
  std::vector<double> pick;
  std::unordered_map<double, double> distinct;  // experts by tokens
};

RememberedRouting& remembered(const Routing& routing) {
  thread_local RememberedRouting last;
  if (last.pick.empty() || !(last.routing == routing)) {
    last = {routing, pick_probabilities(routing), {}};
  }
  return last;
}

}  // namespace

double distinct_experts(const Routing& routing, double tokens) {
  if (tokens <= 0) return 0;
  if (routing.skew <= 0) {
    const double miss = 1 - routing.top_k / routing.experts;
    return miss <= 0 ? routing.experts : routing.experts * -std::expm1(tokens * std::log(miss));
  }
  RememberedRouting& known = remembered(routing);
  constexpr size_t kMostNumbers = 4096;
  if (known.distinct.size() >= kMostNumbers) known.distinct.clear();
  const auto [found, is_new] = known.distinct.try_emplace(tokens, 0.0);
  if (is_new) {
    for (double p : known.pick) found->second += 1 - std::pow(1 - p, tokens);
  }
  return found->second;
}

double busiest_rank(const Routing& routing, double tokens, double ranks) {
  if (ranks <= 1 || tokens <= 0) return 1;
  const double mean = tokens * routing.top_k / ranks;
  double load = 1 + std::sqrt(2 * std::log(ranks) / mean);
  if (routing.skew > 0) {
    const std::vector<double>& pick = remembered(routing).pick;
    double first = 0;
    for (size_t r = 0; r < pick.size(); r += static_cast<size_t>(ranks)) first += pick[r];
    load += std::max(0.0, first * ranks / routing.top_k - 1);
  }
  // No rank can receive more than every token once per expert it holds, nor more than all picks.
  const double most = std::min(tokens * std::ceil(routing.experts / ranks), tokens * routing.top_k);
  return std::min(load, most / mean);
}

MatmulShape expert_up(const ExpertBlock& block, double rows) {
  MatmulShape s;
  s.m = rows;
  s.k = block.hidden;
  s.n = (block.gated ? 2 : 1) * block.inter;
  s.outputs_kept = block.gated ? 0.5 : 1;
  s.weight_bits = block.weight_bits;
  s.in_bytes = block.in_bytes;
  s.math = block.math;
  return s;
}

MatmulShape expert_down(const ExpertBlock& block, double rows) {
  MatmulShape s;
  s.m = rows;
  s.k = block.inter;
  s.n = block.hidden;
  s.weight_bits = block.weight_bits;
  s.in_bytes = block.in_bytes;
  s.math = block.math;
  return s;
}

}  // namespace ridge
