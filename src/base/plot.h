// One description of a picture, drawn in the terminal (braille dots) or as SVG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct Axis {
  std::string label;  // "FLOP/byte"
  bool log = true;
  double low = 0, high = 0;  // equal: from the data
};

struct Series {  // a line through points, in order
  std::string label;
  std::vector<double> x, y;
  bool dashed = false;
  bool points = false;  // the points alone, as dots
  bool hollow = false;  // points as circles: values not to lean on
  int colour = -1;      // of the palette; -1: by the place among the series
};

struct Marker {  // one labelled point
  std::string label;
  double x = 0, y = 0;
  double weight = 1;  // SVG: area of the dot (share of time)
};

struct Plot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  std::vector<Marker> markers;
};

// About width x height characters for the picture; below it, which letter (at the end of its line)
// is which series and which number is which marker. Points that are not finite, or not positive on
// a logarithmic axis, are left out. Both functions draw empty axes when nothing is left.
std::string draw_text(const Plot& plot, int width = 78, int height = 20);
// A standalone SVG document, readable on light and dark grounds, text escaped.
std::string draw_svg(const Plot& plot, int width = 900, int height = 560);

}  // namespace ridge
