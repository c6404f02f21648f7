// One axis of a plot: where a value lies between its ends, and where the ticks go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/plot.h"

namespace ridge {

struct Tick {
  double at;  // 0 at the low end of the axis, 1 at the high end
  std::string label;
};

struct Point {
  double x, y;
};

class Scale {
 public:
  // Ends as the axis gives them, else from `values`, with a little room on both sides.
  Scale(const Axis& axis, const std::vector<double>& values);

  // Whether the axis can show this value at all, inside its ends or not.
  bool accepts(double value) const;
  // 0 at the low end, 1 at the high end, beyond those outside. Needs accepts(value).
  double at(double value) const;
  // At most `most` ticks with short labels ("0.1", "10", "1 k", "10 T").
  std::vector<Tick> ticks(int most) const;

 private:
  double project(double value) const;

  bool log_;
  double low_, high_;  // projected; low_ < high_
};

// Both axes of a plot.
struct Frame {
  explicit Frame(const Plot& plot);

  // A point in the unit square (y upwards), or beyond it; nullopt when it cannot be shown.
  std::optional<Point> place(double x, double y) const;

  Scale x, y;
};

// Whether the point lies in the unit square.
bool inside(const Point& point);

// The part of a segment inside the unit square.
struct Segment {
  Point from, to;
};
std::optional<Segment> clip(const Segment& segment);

// The parts of a series that show, in order.
std::vector<Segment> visible_segments(const Series& series, const Frame& frame);

}  // namespace ridge
