#include "base/units.h"

#include <array>
#include <cmath>
#include <span>

#include "base/error.h"

namespace ridge {
namespace {

constexpr std::array<std::string_view, 9> kSi = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
constexpr std::array<std::string_view, 5> kCount = {"", "k", "M", "B", "T"};
constexpr std::array<std::string_view, 7> kBinary = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};

// Above this, three significant digits of x are those of 1000: the next prefix has to take over.
constexpr double kRoundsTo1000 = 999.5;

// Three significant digits of |value| < 1000, the digits after the point chosen on the rounded
// value, so that 9.996 gives "10.0" and not "10.00".
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  if (size >= 0.9995) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3g}", value);
}

std::string join_unit(std::string_view number, std::string_view prefix, std::string_view unit) {
  if (prefix.empty() && unit.empty()) return std::string(number);
  return fmt::format("{} {}{}", number, prefix, unit);
}

// NaN is how the code says unknown.
std::string not_finite(double value) {
  if (std::isnan(value)) return "?";
  return value > 0 ? "inf" : "-inf";
}

struct Scaled {
  double value;
  std::string_view prefix;
};

// The largest prefix that leaves at least 1 after rounding.
Scaled scale(double value, double base, std::span<const std::string_view> prefixes) {
  // 1023.7 KiB stays as it is: four digits are how people write binary sizes just below a step.
  const double limit = base == 1000 ? kRoundsTo1000 : base - 0.5;
  size_t step = 0;
  while (std::abs(value) >= limit && step + 1 < prefixes.size()) {
    value /= base;
    ++step;
  }
  return {value, prefixes[step]};
}

bool is_whole(double value) { return value == std::floor(value); }

std::string with_prefix(double value, std::string_view unit) {
  if (!std::isfinite(value)) return not_finite(value);
  const Scaled scaled = scale(value, 1000, kSi);
  if (std::abs(scaled.value) >= kRoundsTo1000) return join_unit(pretty_number(value), "", unit);
  // Below the first prefix things are counted, not measured: "5 B", not "5.00 B".
  const bool counted = scaled.prefix.empty() && is_whole(scaled.value);
  const std::string digits =
      counted ? fmt::format("{:.0f}", scaled.value) : three_digits(scaled.value);
  return join_unit(digits, scaled.prefix, unit);
}

}  // namespace

std::string pretty_bytes(double bytes) { return with_prefix(bytes, "B"); }
std::string pretty_rate(double bytes_per_s) { return with_prefix(bytes_per_s, "B/s"); }
std::string pretty_flops(double flops) { return with_prefix(flops, "FLOP"); }
std::string pretty_flop_rate(double flop_per_s) { return with_prefix(flop_per_s, "FLOP/s"); }

std::string pretty_binary(double bytes) {
  if (!std::isfinite(bytes)) return not_finite(bytes);
  const Scaled scaled = scale(bytes, 1024, kBinary);
  if (std::abs(scaled.value) >= 1024) return join_unit(pretty_number(bytes), "", "B");
  return join_unit(pretty_number(scaled.value), scaled.prefix, "B");
}

std::string pretty_time(double seconds) {
  if (!std::isfinite(seconds)) return not_finite(seconds);
  if (seconds < 0) return "-" + pretty_time(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < kRoundsTo1000 * 1e-9) return three_digits(seconds * 1e9) + " ns";
  if (seconds < kRoundsTo1000 * 1e-6) return three_digits(seconds * 1e6) + " us";
  if (seconds < kRoundsTo1000 * 1e-3) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  // Round before choosing the pair of units, so that 3599.7 s is "1 h 0 m" and not "60 m 0 s".
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  const double whole_s = std::round(seconds);
  if (whole_s < kHour) {
    return fmt::format("{:.0f} m {:.0f} s", std::floor(whole_s / 60), std::fmod(whole_s, 60));
  }
  const double minutes = std::round(seconds / kMinute);
  if (minutes < kDay / kMinute) {
    return fmt::format("{:.0f} h {:.0f} m", std::floor(minutes / 60), std::fmod(minutes, 60));
  }
  const double hours = std::round(seconds / kHour);
  if (hours < 100 * 24) {
    return fmt::format("{:.0f} d {:.0f} h", std::floor(hours / 24), std::fmod(hours, 24));
  }
  return pretty_number(std::round(seconds / kDay)) + " d";
}

std::string pretty_count(double count) {
  if (!std::isfinite(count)) return not_finite(count);
  // Dimensions such as 8192 are names as much as numbers: keep their digits.
  if (std::abs(count) < 10000 && is_whole(count)) return fmt::format("{:.0f}", count);
  const Scaled scaled = scale(count, 1000, kCount);
  return join_unit(pretty_number(scaled.value), scaled.prefix, "");
}

std::string pretty_number(double value) {
  if (!std::isfinite(value)) return not_finite(value);
  const double size = std::abs(value);
  if (size >= 1e7 || (size < 1e-4 && size > 0)) return fmt::format("{:.2e}", value);
  if (is_whole(value) || size >= kRoundsTo1000) return fmt::format("{:.0f}", value);
  return three_digits(value);
}

std::string pretty_percent(double fraction) {
  if (!std::isfinite(fraction)) return not_finite(fraction);
  const double percent = 100 * fraction, size = std::abs(percent);
  if (size == 0) return "0 %";
  if (size >= 1e7) return pretty_number(percent) + " %";
  if (size >= 9.95) return fmt::format("{:.0f} %", percent);
  if (size >= 0.05) return fmt::format("{:.1f} %", percent);
  return percent > 0 ? "<0.1 %" : ">-0.1 %";
}

}  // namespace ridge
