#include "base/percentiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridge {

double percentile(std::span<const double> sorted, double share) {
  const double at = share * double(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - double(below)) * (sorted[above] - sorted[below]);
}

Percentiles percentiles_of(std::vector<double> values) {
  Percentiles result;
  result.count = values.size();
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  const double count = double(values.size());
  for (const double value : values) result.mean += value / count;
  for (const double value : values) {
    result.deviation += (value - result.mean) * (value - result.mean) / count;
  }
  result.deviation = std::sqrt(result.deviation);
  result.p50 = percentile(values, 0.5);
  result.p90 = percentile(values, 0.9);
  result.p95 = percentile(values, 0.95);
  result.p99 = percentile(values, 0.99);
  result.max = values.back();
  return result;
}

// The number of values below the true percentile is binomial (n, share); the normal approximation
// gives the ranks of the interval's ends.
PercentileInterval percentile_interval(std::span<const double> sorted, double share) {
  if (sorted.empty()) return {};
  const double n = double(sorted.size());
  const double spread = 1.96 * std::sqrt(n * share * (1 - share));
  const double low = std::floor(n * share - spread), high = std::ceil(n * share + spread);
  return {percentile(sorted, share), low < 0 ? 0 : sorted[static_cast<size_t>(low)],
          high < n ? sorted[static_cast<size_t>(high)] : std::numeric_limits<double>::infinity()};
}

}  // namespace ridge
