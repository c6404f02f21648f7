// draw_svg: the same picture as a document of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/plot.h"
#include "base/scale.h"
#include "base/text.h"

namespace ridge {
namespace {

constexpr int kColours = 6;
constexpr double kLegendRow = 20;
constexpr double kLabelSize = 11.5;  // font size of marker labels, px

// Okabe and Ito's palette, which the common colour blindnesses keep apart, darkened for white
// ground and lightened for dark. Lines also differ by dashes and by the order of the legend.
constexpr std::string_view kStyle = R"(<style>
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f; }
.ground { fill: #ffffff; } .frame { fill: none; }
.frame, .leader { stroke: #8c959f; } .grid { stroke: #e3e6ea; }
.title { font-size: 16px; font-weight: 600; } .tick { font-size: 11.5px; fill: #57606a; }
.axis { font-size: 12.5px; } .legend { font-size: 12.5px; }
.label { font-size: 11.5px; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; }
.line { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.points { stroke-width: 8; } .hole { stroke-width: 4.4; stroke: #ffffff; }
.dot { fill: #24292f; fill-opacity: 0.72; stroke: #ffffff; }
.c0 { stroke: #0072b2; } .c1 { stroke: #d55e00; } .c2 { stroke: #009e73; }
.c3 { stroke: #b3508a; } .c4 { stroke: #c98a00; } .c5 { stroke: #3c9bd1; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .ground { fill: #0d1117; } .frame, .leader { stroke: #6e7681; } .grid { stroke: #262c34; }
.tick { fill: #9aa4af; } .label { stroke: #0d1117; } .dot { fill: #e6edf3; stroke: #0d1117; }
.hole { stroke: #0d1117; }
.c0 { stroke: #4aa8e0; } .c1 { stroke: #ff8a3d; } .c2 { stroke: #2fc79a; }
.c3 { stroke: #e58fc2; } .c4 { stroke: #f0c24b; } .c5 { stroke: #9ad4f5; }
}
</style>
)";

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      // XML has no way to write other control characters.
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// Without font metrics: 0.6 em is the mean advance of sans-serif text, rounded up.
double text_width(std::string_view text, double size) {
  return 0.6 * size * static_cast<double>(display_width(text));
}

struct Box {
  double left, top, right, bottom;
};

double overlap(const Box& a, const Box& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  return width > 0 && height > 0 ? width * height : 0;
}

struct Dot {
  size_t marker;
  double x, y, radius;
};

class SvgPicture {
 public:
  SvgPicture(const Plot& plot, int width, int height);
  std::string draw();

 private:
  double px(double share) const { return area_.left + share * (area_.right - area_.left); }
  double py(double share) const { return area_.bottom - share * (area_.bottom - area_.top); }
  void text(double x, double y, std::string_view css, std::string_view anchor,
            std::string_view words);
  void stroke(size_t s, const std::string& path);
  void draw_legend();
  void draw_axes();
  void draw_lines();
  void draw_markers();
  std::vector<Dot> dots() const;
  std::vector<Box> obstacles(const std::vector<Dot>& shown) const;
  Box label_box(const Dot& dot, const std::vector<Box>& taken) const;

  const Plot& plot_;
  Frame frame_;
  double width_, height_;
  std::vector<Point> legend_;  // where each series' entry goes
  Box area_{};
  std::string out_;
};

SvgPicture::SvgPicture(const Plot& plot, int width, int height)
    : plot_(plot), frame_(plot), width_(std::max(width, 200)), height_(std::max(height, 150)) {
  constexpr double kLeft = 76, kRight = 24, kBottom = 54, kSwatch = 30, kGap = 24;
  // The legend wraps between title and picture, so that it can never cover data.
  double x = kLeft, y = plot.title.empty() ? 24 : 52;
  for (const Series& series : plot.series) {
    const double entry = kSwatch + text_width(series.label, 12.5) + kGap;
    if (x > kLeft && x + entry > width_ - kRight) {
      x = kLeft;
      y += kLegendRow;
    }
    legend_.push_back({x, y});
    x += entry;
  }
  const double top = plot.series.empty() ? y - 8 : y + 16;
  area_ = {kLeft, std::min(top, height_ - kBottom - 40), width_ - kRight, height_ - kBottom};
}

void SvgPicture::text(double x, double y, std::string_view css, std::string_view anchor,
                      std::string_view words) {
  out_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                      css, x, y, anchor, escape_xml(words));
}

// A path in the style of a series.
void SvgPicture::stroke(size_t s, const std::string& path) {
  const Series& series = plot_.series[s];
  const size_t colour = series.colour >= 0 ? static_cast<size_t>(series.colour) : s;
  out_ += fmt::format("<path class=\"line{} c{}\" d=\"{}\"{}/>\n", series.points ? " points" : "",
                      colour % kColours, path, series.dashed ? " stroke-dasharray=\"7 5\"" : "");
  if (series.hollow) out_ += fmt::format("<path class=\"line hole\" d=\"{}\"/>\n", path);
}

void SvgPicture::draw_legend() {
  for (size_t s = 0; s < plot_.series.size(); ++s) {
    const auto [x, y] = legend_[s];
    const double left = plot_.series[s].points ? x + 11 : x;
    const double right = plot_.series[s].points ? x + 11 : x + 22;
    stroke(s, fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", left, y - 4, right, y - 4));
    text(x + 30, y, "legend", "start", plot_.series[s].label);
  }
}

void SvgPicture::draw_axes() {
  const auto rule = [this](double x1, double y1, double x2, double y2) {
    out_ += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x1, y1,
        x2, y2);
  };
  for (const Tick& tick : frame_.x.ticks(12)) {
    rule(px(tick.at), area_.top, px(tick.at), area_.bottom);
    text(px(tick.at), area_.bottom + 17, "tick", "middle", tick.label);
  }
  for (const Tick& tick : frame_.y.ticks(10)) {
    rule(area_.left, py(tick.at), area_.right, py(tick.at));
    text(area_.left - 8, py(tick.at) + 4, "tick", "end", tick.label);
  }
  out_ += fmt::format(
      "<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
      area_.left, area_.top, area_.right - area_.left, area_.bottom - area_.top);
  text(px(0.5), height_ - 14, "axis", "middle", plot_.x.label);
  out_ += fmt::format(
      "<text class=\"axis\" transform=\"translate(20 {:.1f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      py(0.5), escape_xml(plot_.y.label));
}

void SvgPicture::draw_lines() {
  for (size_t s = 0; s < plot_.series.size(); ++s) {
    std::string path;
    Point pen{-1, -1};
    for (const Segment& part : visible_segments(plot_.series[s], frame_)) {
      const bool joined = part.from.x == pen.x && part.from.y == pen.y;
      if (!joined) path += fmt::format("M{:.1f} {:.1f}", px(part.from.x), py(part.from.y));
      path += fmt::format("L{:.1f} {:.1f}", px(part.to.x), py(part.to.y));
      pen = part.to;
    }
    if (!path.empty()) stroke(s, path);
  }
}

// Area follows weight; the heaviest is 11 px in radius and the lightest still visible.
std::vector<Dot> SvgPicture::dots() const {
  constexpr double kLargest = 11, kSmallest = 3;
  double heaviest = 0;
  for (const Marker& marker : plot_.markers) {
    if (std::isfinite(marker.weight)) heaviest = std::max(heaviest, marker.weight);
  }
  std::vector<Dot> dots;
  for (size_t m = 0; m < plot_.markers.size(); ++m) {
    const Marker& marker = plot_.markers[m];
    const auto point = frame_.place(marker.x, marker.y);
    if (!point || !inside(*point)) continue;
    const double share = marker.weight > 0 && heaviest > 0 ? marker.weight / heaviest : 0;
    const double radius = std::clamp(kLargest * std::sqrt(share), kSmallest, kLargest);
    dots.push_back({m, px(point->x), py(point->y), radius});
  }
  // Large dots first, so that small ones lie on top of them.
  std::stable_sort(dots.begin(), dots.end(),
                   [](const Dot& a, const Dot& b) { return a.radius > b.radius; });
  return dots;
}

// What labels should not cover: dots, and lines as small boxes every few pixels.
std::vector<Box> SvgPicture::obstacles(const std::vector<Dot>& shown) const {
  const auto around = [](double x, double y, double radius) {
    return Box{x - radius, y - radius, x + radius, y + radius};
  };
  std::vector<Box> boxes;
  boxes.reserve(shown.size());
  for (const Dot& dot : shown) boxes.push_back(around(dot.x, dot.y, dot.radius));
  for (const Series& series : plot_.series) {
    for (const Segment& part : visible_segments(series, frame_)) {
      const double x = px(part.from.x), y = py(part.from.y);
      const double dx = px(part.to.x) - x, dy = py(part.to.y) - y;
      const int steps = 1 + static_cast<int>(std::hypot(dx, dy) / 6);
      for (int i = 0; i <= steps; ++i) {
        boxes.push_back(around(x + dx * i / steps, y + dy * i / steps, 1.5));
      }
    }
  }
  return boxes;
}

// Tries places round the dot, ever further out, and takes the one that covers least.
Box SvgPicture::label_box(const Dot& dot, const std::vector<Box>& taken) const {
  const double width = text_width(plot_.markers[dot.marker].label, kLabelSize);
  const double height = kLabelSize + 2;
  constexpr std::array<Point, 8> kDirections = {
      {{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, 1}, {1, -1}, {-1, 1}, {-1, -1}}};
  constexpr int kRings = 6;
  constexpr double kNothing = 0.5;  // square pixels: below what anybody sees
  Box best{};
  double least = INFINITY;
  for (int ring = 0; ring < kRings && least > kNothing; ++ring) {
    const double away = dot.radius + 4 + 13.0 * ring;
    for (const Point& direction : kDirections) {
      const double x = dot.x + direction.x * (away + width / 2);
      const double y = dot.y + direction.y * (away + height / 2);
      const Box box{x - width / 2, y - height / 2, x + width / 2, y + height / 2};
      double covered = width * height - overlap(box, area_);  // outside the frame
      for (const Box& other : taken) covered += overlap(box, other);
      if (covered > least - kNothing) continue;
      least = covered;
      best = box;
    }
  }
  return best;
}

void SvgPicture::draw_markers() {
  const std::vector<Dot> shown = dots();
  for (const Dot& dot : shown) {
    out_ += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"/>\n", dot.x,
                        dot.y, dot.radius);
  }
  std::vector<Box> taken = obstacles(shown), boxes;
  for (const Dot& dot : shown) {
    const Box box = label_box(dot, taken);
    boxes.push_back(box);
    taken.push_back(box);
    // A label that had to move away says whose it is by a thin line.
    const double x = std::clamp(dot.x, box.left, box.right);
    const double y = std::clamp(dot.y, box.top, box.bottom);
    if (std::hypot(x - dot.x, y - dot.y) <= dot.radius + 12) continue;
    out_ += fmt::format(
        "<line class=\"leader\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", dot.x,
        dot.y, x, y);
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    text((boxes[i].left + boxes[i].right) / 2, boxes[i].bottom - 3, "label", "middle",
         plot_.markers[shown[i].marker].label);
  }
}

std::string SvgPicture::draw() {
  out_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n",
      width_, height_);
  out_ += fmt::format("<title>{}</title>\n", escape_xml(plot_.title));
  out_ += kStyle;
  out_ += "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n";
  if (!plot_.title.empty()) text(area_.left, 28, "title", "start", plot_.title);
  draw_legend();
  draw_axes();
  draw_lines();
  draw_markers();
  return out_ + "</svg>\n";
}

}  // namespace

std::string draw_svg(const Plot& plot, int width, int height) {
  return SvgPicture(plot, width, height).draw();
}

}  // namespace ridge
