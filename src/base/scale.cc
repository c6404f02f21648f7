#include "base/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace ridge {
namespace {

// Room beyond the outermost data, as a share of the axis.
constexpr double kMargin = 0.04;

// Rounding may put the end of an axis a hair outside the unit square.
constexpr double kEdge = 1e-9;

// With a prefix where that is shorter: "1 k", but the year 2015 stays "2015".
std::string tick_label(double value) {
  const std::string plain = fmt::format("{:.4g}", value);
  constexpr std::array<std::string_view, 7> kPrefixes = {"", " k", " M", " G", " T", " P", " E"};
  size_t step = 0;
  while (std::abs(value) >= 999.5 && step + 1 < kPrefixes.size()) {
    value /= 1000;
    ++step;
  }
  const std::string prefixed = fmt::format("{:.4g}{}", value, kPrefixes[step]);
  return prefixed.size() < plain.size() || plain.find('e') != plain.npos ? prefixed : plain;
}

// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double decade = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= step * (1 - kEdge)) return factor * decade;
  }
  return 10 * decade;
}

std::vector<double> linear_ticks(double low, double high, int most) {
  const double step = round_step((high - low) / std::max(most - 1, 1));
  std::vector<double> values;
  const double slack = step * 1e-6;
  // By index: at low = 1e300 adding the step would change nothing.
  const double first = std::ceil((low - slack) / step);
  for (int i = 0; i < most; ++i) {
    const double value = (first + i) * step;
    if (value > high + slack) break;
    values.push_back(value);
  }
  return values;
}

// Powers of ten, thinned when there are too many; 2 and 5 between them when there are few.
std::vector<double> log_ticks(double low, double high, int most) {
  const int first = static_cast<int>(std::floor(low)), last = static_cast<int>(std::ceil(high));
  const int decades = static_cast<int>(std::floor(high + kEdge) - std::ceil(low - kEdge)) + 1;
  const int stride = std::max(1, (decades + most - 1) / std::max(most, 1));
  const bool fill = 3 * decades <= most + 1;
  std::vector<double> values;
  for (int decade = first; decade <= last; ++decade) {
    if (decade % stride != 0) continue;
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !fill) break;
      const double value = factor * std::pow(10, decade);
      const double at = std::log10(value);
      if (at >= low - kEdge && at <= high + kEdge) values.push_back(value);
    }
  }
  return values;
}

}  // namespace

Scale::Scale(const Axis& axis, const std::vector<double>& values) : log_(axis.log) {
  const bool given = accepts(axis.low) && accepts(axis.high) && axis.low < axis.high;
  if (given) {
    low_ = project(axis.low);
    high_ = project(axis.high);
    return;
  }
  std::vector<double> usable;
  for (const double value : values) {
    if (accepts(value)) usable.push_back(project(value));
  }
  if (usable.empty()) usable = {0, 1};  // 1..10 on a logarithmic axis
  const auto [least, most] = std::minmax_element(usable.begin(), usable.end());
  const double span = *most - *least;
  // A single value sits in the middle of an axis of its own size.
  const double room = span > 0 ? kMargin * span : std::max(0.5, 0.5 * std::abs(*least));
  low_ = *least - room;
  high_ = *most + room;
}

bool Scale::accepts(double value) const {
  // The bound keeps differences of two values finite.
  return std::isfinite(value) && std::abs(value) < 1e300 && (!log_ || value > 0);
}

double Scale::project(double value) const { return log_ ? std::log10(value) : value; }

double Scale::at(double value) const { return (project(value) - low_) / (high_ - low_); }

std::vector<Tick> Scale::ticks(int most) const {
  std::vector<Tick> ticks;
  const auto values = log_ ? log_ticks(low_, high_, most) : linear_ticks(low_, high_, most);
  ticks.reserve(values.size());
  for (const double value : values) ticks.push_back({at(value), tick_label(value)});
  return ticks;
}

namespace {

std::vector<double> coordinates(const Plot& plot, std::vector<double> Series::*line,
                                double Marker::*dot) {
  std::vector<double> all;
  for (const Series& series : plot.series) {
    all.insert(all.end(), (series.*line).begin(), (series.*line).end());
  }
  for (const Marker& marker : plot.markers) all.push_back(marker.*dot);
  return all;
}

}  // namespace

Frame::Frame(const Plot& plot)
    : x(plot.x, coordinates(plot, &Series::x, &Marker::x)),
      y(plot.y, coordinates(plot, &Series::y, &Marker::y)) {}

std::optional<Point> Frame::place(double x_value, double y_value) const {
  if (!x.accepts(x_value) || !y.accepts(y_value)) return std::nullopt;
  return Point{x.at(x_value), y.at(y_value)};
}

bool inside(const Point& point) {
  return point.x >= -kEdge && point.x <= 1 + kEdge && point.y >= -kEdge && point.y <= 1 + kEdge;
}

// Liang and Barsky: shrink the parameter range [enter, leave] by each of the four edges.
std::optional<Segment> clip(const Segment& segment) {
  const double dx = segment.to.x - segment.from.x, dy = segment.to.y - segment.from.y;
  const double direction[] = {-dx, dx, -dy, dy};
  const double distance[] = {segment.from.x + kEdge, 1 + kEdge - segment.from.x,
                             segment.from.y + kEdge, 1 + kEdge - segment.from.y};
  double enter = 0, leave = 1;
  for (int edge = 0; edge < 4; ++edge) {
    if (direction[edge] == 0) {
      if (distance[edge] < 0) return std::nullopt;
      continue;
    }
    const double crossing = distance[edge] / direction[edge];
    if (direction[edge] < 0) {
      enter = std::max(enter, crossing);
    } else {
      leave = std::min(leave, crossing);
    }
  }
  if (enter > leave) return std::nullopt;
  const auto along = [&](double t) {
    return Point{segment.from.x + t * dx, segment.from.y + t * dy};
  };
  return Segment{along(enter), along(leave)};
}

std::vector<Segment> visible_segments(const Series& series, const Frame& frame) {
  std::vector<Segment> segments;
  std::optional<Point> before;
  const size_t points = std::min(series.x.size(), series.y.size());
  for (size_t i = 0; i < points; ++i) {
    const auto point = frame.place(series.x[i], series.y[i]);
    if (point && (before || points == 1 || series.points)) {
      const Point from = series.points ? *point : before.value_or(*point);
      const auto visible = clip({from, *point});
      if (visible) segments.push_back(*visible);
    }
    // A point that cannot be shown breaks the line: joining its neighbours would invent data.
    before = point;
  }
  return segments;
}

}  // namespace ridge
