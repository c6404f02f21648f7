#include "lab/lab_curves.h"

#include <algorithm>
#include <cmath>

namespace ridge {

double measured_at(const LabSeries& series, double x) {
  for (const LabPoint& point : series.points) {
    if (point.x == x) return point.measured;
  }
  return 0;
}

const LabPoint* point_at(const LabSeries& series, double x) {
  for (const LabPoint& point : series.points) {
    if (point.x == x) return &point;
  }
  return &series.points.front();
}

const LabPoint& largest_of(const LabSeries& series) {
  return *std::ranges::max_element(series.points, {}, &LabPoint::measured);
}

const LabPoint& first_near_largest(const LabSeries& series, double share) {
  const double least = share * largest_of(series).measured;
  return *std::ranges::find_if(series.points,
                               [&](const LabPoint& point) { return point.measured >= least; });
}

LabPoints points_around(const LabSeries& series, double x) {
  const LabPoint *below = nullptr, *above = nullptr;
  for (const LabPoint& point : series.points) {
    if (point.x <= x) below = &point;
    if (point.x > x && above == nullptr) above = &point;
  }
  LabPoints points;
  for (const LabPoint* point : {below, above}) {
    if (point != nullptr) points.push_back(point);
  }
  return points;
}

double crossing(const LabSeries& rising, double level) {
  const std::vector<LabPoint>& p = rising.points;
  for (size_t i = 1; i < p.size(); ++i) {
    if (p[i].measured < level) continue;
    const double share =
        std::log(level / p[i - 1].measured) / std::log(p[i].measured / p[i - 1].measured);
    return p[i - 1].x * std::pow(p[i].x / p[i - 1].x, std::clamp(share, 0.0, 1.0));
  }
  return p.back().x;
}

double break_even(const LabSeries& other, const LabSeries& rising) {
  const auto ratio = [&](size_t i) {
    return std::log(rising.points[i].measured / other.points[i].measured);
  };
  for (size_t i = 0; i < other.points.size(); ++i) {
    if (ratio(i) < 0) continue;
    if (i == 0) return other.points[0].x;
    const double share = ratio(i - 1) / (ratio(i - 1) - ratio(i));
    return other.points[i - 1].x * std::pow(other.points[i].x / other.points[i - 1].x, share);
  }
  return 0;
}

}  // namespace ridge
