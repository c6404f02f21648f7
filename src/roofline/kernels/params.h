// Fitted numbers by name, so that the JSON reader, the fit and the tests walk the same list.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ridge {

// One fitted number of a parameter struct and the interval it may lie in. Where both ends are
// positive the fit moves on a logarithmic scale. A structural number says which way a library
// works (its tile floors, whether it groups heads): the fit tries a few values and needs a clear
// gain to leave the default.
template <typename Params>
struct Field {
  const char* name;
  double Params::*member;
  double low, high;
  bool structural = false;
};

// Each parameter struct has `static std::span<const Field<P>> fields()`.

// Rounding of positive numbers below 2^63 by integer conversion: std::ceil is a library call on
// baseline x86-64 and these run a dozen times per kernel.
inline double whole(double x) { return static_cast<double>(static_cast<int64_t>(x)); }
inline double round_up(double x) {
  const double down = whole(x);
  return down + (down < x ? 1 : 0);
}
inline double blocks(double a, double b) { return round_up(a / b); }

// (a^p + b^p)^(1/p): the larger of two overlapping times, rounded where they are equal.
inline double smooth_max(double a, double b, double p) {
  const double high = a > b ? a : b, low = a > b ? b : a;
  if (low <= 0) return high;
  const double ratio = low / high;
  if (ratio < 0.02) return high;
  // exp2 and log2 are half the price of pow.
  return high * std::exp2(std::log2(1 + std::exp2(p * std::log2(ratio))) / p);
}

// Compute left when a kernel (or the burst it runs in) lasts long enough to meet the power limit:
// a sharp step at `after`, then a slow further decline. Measured products on Blackwell fall from
// 0.75 of the peak to 0.45 between 0.3 and 0.5 ms of work, and to 0.35 at 4 ms.
inline double power_share(double work_s, double after_s, double step, double decline) {
  const double x = work_s / after_s, x2 = x * x, x4 = x2 * x2;
  return (1 - step * x4 / (1 + x4)) * (1 - decline * x / (x + 20));
}

}  // namespace ridge
