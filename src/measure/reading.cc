#include "measure/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/units.h"

namespace ridge {
namespace {

// Between neighbours, as most statistics packages do.
double percentile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double Reading::spread() const { return value > 0 ? (high - low) / value : 0; }

double median(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

Reading summarize(std::string id, std::string path, Dimension quantity, std::vector<double> samples,
                  std::string how) {
  assert(!samples.empty());
  std::sort(samples.begin(), samples.end());
  Reading reading;
  reading.id = std::move(id);
  reading.path = std::move(path);
  reading.quantity = quantity;
  reading.value = percentile(samples, 0.5);
  reading.low = percentile(samples, 0.1);
  reading.high = percentile(samples, 0.9);
  reading.samples = static_cast<int>(samples.size());
  reading.how = std::move(how);
  return reading;
}

const Reading* Report::find(std::string_view id) const {
  const auto found = std::find_if(readings.begin(), readings.end(),
                                  [&](const Reading& reading) { return reading.id == id; });
  return found == readings.end() ? nullptr : &*found;
}

std::string quantity_text(Dimension quantity, double value) {
  switch (quantity) {
    case Dimension::bandwidth:
      return pretty_rate(value);
    case Dimension::rate:
      return pretty_flop_rate(value);
    case Dimension::time:
      return pretty_time(value);
    case Dimension::size:
      return pretty_binary(value);
    case Dimension::clock:
      return fmt::format("{:.2f} GHz", value / 1e9);
  }
  return "?";
}

}  // namespace ridge
