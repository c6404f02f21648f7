#include "cost/matmul.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

// Two thread blocks of 128x256 sharing operands by multicast: the largest output tile in use on
// Hopper and Blackwell. Each operand is then read from the cache once per 256 rows or columns of
// the other. Larger tiles would lower on-chip traffic further, but accumulators (256 KB of
// registers a unit) do not hold them.
constexpr double kTile = 256;

constexpr double kTokenMultiple = 8;

}  // namespace

double dimension_multiple(DType math) { return std::max(1.0, 16 * 8 / dtype_bits(math)); }

double pad_to(double value, double multiple) { return std::ceil(value / multiple) * multiple; }

Work matmul_work(const MatmulShape& s) { return grouped_matmul_work(s, 1); }

Work grouped_matmul_work(const MatmulShape& s, double experts) {
  Work work;
  if (s.m <= 0 || experts <= 0) return Work{.launches = 0};
  const double rows = s.m / experts;  // per expert; may be fractional on average
  const double multiple = dimension_multiple(s.math);
  const double inputs = s.input_bytes();
  const double weights = experts * s.weight_bytes();
  const double outputs = s.output_bytes();
  work.flops = s.flops();
  work.padded_flops =
      2 * experts * pad_to(rows, kTokenMultiple) * pad_to(s.k, multiple) * pad_to(s.n, multiple);
  work.weight_bytes = weights;
  work.act_bytes = inputs + outputs;
  work.chip_bytes =
      inputs * std::max(1.0, s.n / kTile) + weights * std::max(1.0, rows / kTile) + outputs;
  return work;
}

}  // namespace ridge
