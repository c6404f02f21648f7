// Percentiles of a sample.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ridge {

struct Percentiles {
  size_t count = 0;
  double mean = 0, deviation = 0;  // all 0 where there are no values
  double p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// Between two values, percentiles are interpolated (as numpy does).
Percentiles percentiles_of(std::vector<double> values);

// One percentile of values in ascending order, `share` from 0 to 1. At least one value.
double percentile(std::span<const double> sorted, double share);

// A percentile and what it may be in a sample as large as this one: the interval between two order
// statistics that holds the true percentile with 95 % probability, whatever the distribution. The
// high end is infinite where the sample is too small to bound it.
struct PercentileInterval {
  double value = 0, low = 0, high = 0;
};
PercentileInterval percentile_interval(std::span<const double> sorted, double share);

}  // namespace ridge
