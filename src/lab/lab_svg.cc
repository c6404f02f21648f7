// lab_svg: the picture of a result as an SVG document.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/scale.h"
#include "base/units.h"
#include "lab/lab_figure.h"

namespace ridge {
namespace {

constexpr size_t kSvgColours = 6;

// Okabe and Ito's palette, as base/plot_svg.cc has it. Series also differ by their marks' shapes.
constexpr std::string_view kSvgStyle = R"(<style>
text { font: 12.5px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f; }
.tick { font-size: 12px; fill: #57606a; } .frame { fill: none; stroke: #8c959f; } .grid { stroke: #e3e6ea; }
.band { stroke: none; fill-opacity: 0.16; } .predicted { fill: none; stroke-width: 2; stroke-dasharray: 7 5; }
.mark { stroke-width: 1.6; } .hollow { fill: #ffffff; }
.c0 { stroke: #0072b2; } .c1 { stroke: #d55e00; } .c2 { stroke: #009e73; }
.c3 { stroke: #b3508a; } .c4 { stroke: #c98a00; } .c5 { stroke: #3c9bd1; }
.f0 { fill: #0072b2; } .f1 { fill: #d55e00; } .f2 { fill: #009e73; }
.f3 { fill: #b3508a; } .f4 { fill: #c98a00; } .f5 { fill: #3c9bd1; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .tick { fill: #9aa4af; } .frame { stroke: #6e7681; } .grid { stroke: #262c34; }
.hollow { fill: #0d1117; } .band { fill-opacity: 0.28; }
.c0 { stroke: #4aa8e0; } .c1 { stroke: #ff8a3d; } .c2 { stroke: #2fc79a; }
.c3 { stroke: #e58fc2; } .c4 { stroke: #f0c24b; } .c5 { stroke: #9ad4f5; }
.f0 { fill: #4aa8e0; } .f1 { fill: #ff8a3d; } .f2 { fill: #2fc79a; }
.f3 { fill: #e58fc2; } .f4 { fill: #f0c24b; } .f5 { fill: #9ad4f5; }
}
</style>
)";

double svg_text_width(std::string_view text) { return 7.2 * double(text.size()); }

struct SvgBox {
  double left, top, right, bottom;
};

// A circle, square, diamond or triangle round (x, y).
std::string mark_path(size_t series, double x, double y) {
  switch (series % 4) {
    case 0:
      return fmt::format("M{:.1f} {:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z", x - 4.5, y);
    case 1:
      return fmt::format("M{:.1f} {:.1f}h8v8h-8Z", x - 4, y - 4);
    case 2:
      return fmt::format("M{:.1f} {:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5Z", x, y - 5.5);
    default:
      return fmt::format("M{:.1f} {:.1f}l5.2 9h-10.4Z", x, y - 5);
  }
}

// What both kinds of picture share.
class LabPicture {
 public:
  explicit LabPicture(const LabResult& result) : result_(result) {}

  std::string document(const Experiment& experiment) const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<title>{2}</title>\n",
               kWidth, height_, escape_html(experiment.question)) +
           std::string(kSvgStyle) + out_ + "</svg>\n";
  }

 protected:
  static constexpr double kWidth = 900;

  void text(double x, double y, const char* css, const char* anchor, std::string_view words) {
    out_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                    css, x, y, anchor, escape_html(words));
  }
  void rule(double x1, double y1, double x2, double y2) {
    out_ += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x1, y1,
        x2, y2);
  }
  void frame(const SvgBox& box) {
    out_ += fmt::format(
        "<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
        box.left, box.top, box.right - box.left, box.bottom - box.top);
  }
  void band(size_t series, const std::string& path) {
    out_ += fmt::format("<path class=\"band f{}\" d=\"{}\"/>\n", series % kSvgColours, path);
  }
  void predicted(size_t series, const std::string& path) {
    out_ += fmt::format("<path class=\"predicted c{}\" d=\"{}\"/>\n", series % kSvgColours, path);
  }
  void mark(size_t series, const LabPoint& p, double x, double y) {
    const std::string at = p.label.empty() ? pretty_number(p.x) : p.label;
    std::string words =
        fmt::format("{}, {}: {}", result_.series[series].name, at, pretty_number(p.measured));
    if (p.predicted()) {
      words += fmt::format(", predicted {} ({} - {})", pretty_number(p.band.expected),
                           pretty_number(p.band.low), pretty_number(p.band.high));
    }
    if (p.doubtful()) words += "; doubtful: " + p.doubt;
    const size_t colour = series % kSvgColours;
    out_ += fmt::format("<path class=\"mark c{} {}\" d=\"{}\"><title>{}</title></path>\n", colour,
                        p.doubtful() ? "hollow" : fmt::format("f{}", colour),
                        mark_path(series, x, y), escape_html(words));
  }
  // Entries of all series from `top` down, wrapped; returns where they end.
  double legend(double left, double top) {
    double x = left, y = top;
    for (size_t s = 0; s < result_.series.size(); ++s) {
      const double entry = 40 + svg_text_width(result_.series[s].name);
      if (x > left && x + entry > kWidth - 24) x = left, y += 20;
      out_ += fmt::format("<path class=\"mark c{0} f{0}\" d=\"{1}\"/>\n", s % kSvgColours,
                          mark_path(s, x + 6, y - 4));
      text(x + 18, y, "legend", "start", result_.series[s].name);
      x += entry;
    }
    return y;
  }
  double on(const Scale& scale, double value, double from, double to) const {
    const double share = scale.accepts(value) ? std::clamp(scale.at(value), 0.0, 1.0) : 0;
    return from + share * (to - from);
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const LabSeries& series : result_.series) {
      for (const LabPoint& p : series.points) {
        all.push_back(p.measured);
        if (p.predicted()) all.insert(all.end(), {p.band.low, p.band.expected, p.band.high});
      }
    }
    if (result_.y.log) std::erase_if(all, [](double value) { return value <= 0; });
    return all;
  }

  const LabResult& result_;
  double height_ = 0;
  std::string out_;
};

class NumberPicture : public LabPicture {
 public:
  explicit NumberPicture(const LabResult& result) : LabPicture(result) {
    height_ = 470;
    const double top = legend(76, 22) + 14;
    area_ = {76, top, kWidth - 24, height_ - 54};
    std::vector<double> xs;
    for (const LabSeries& series : result.series) {
      for (const LabPoint& p : series.points) xs.push_back(p.x);
    }
    const Scale x(result.x, xs), y(result.y, values());
    axes(x, y);
    for (size_t s = 0; s < result.series.size(); ++s) draw(s, x, y);
  }

 private:
  void axes(const Scale& x, const Scale& y) {
    for (const Tick& tick : x.ticks(12)) {
      const double at = area_.left + tick.at * (area_.right - area_.left);
      rule(at, area_.top, at, area_.bottom);
      text(at, area_.bottom + 17, "tick", "middle", tick.label);
    }
    for (const Tick& tick : y.ticks(10)) {
      const double at = area_.bottom - tick.at * (area_.bottom - area_.top);
      rule(area_.left, at, area_.right, at);
      text(area_.left - 8, at + 4, "tick", "end", tick.label);
    }
    frame(area_);
    text((area_.left + area_.right) / 2, height_ - 14, "axis", "middle", result_.x.label);
    out_ += fmt::format(
        "<text transform=\"translate(20 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        (area_.top + area_.bottom) / 2, escape_html(result_.y.label));
  }

  void draw(size_t s, const Scale& x, const Scale& y) {
    const auto px = [&](double value) { return on(x, value, area_.left, area_.right); };
    const auto py = [&](double value) { return on(y, value, area_.bottom, area_.top); };
    std::vector<const LabPoint*> known;
    for (const LabPoint& p : result_.series[s].points) {
      if (p.predicted()) known.push_back(&p);
    }
    std::ranges::sort(known, {}, &LabPoint::x);
    if (known.size() == 1) {  // a point has no line: a short one shows its value
      const LabPoint& p = *known.front();
      const double left = px(p.x) - 12;
      band(s, fmt::format("M{:.1f} {:.1f}h24V{:.1f}h-24Z", left, py(p.band.high), py(p.band.low)));
      predicted(s, fmt::format("M{:.1f} {:.1f}h24", left, py(p.band.expected)));
    } else if (!known.empty()) {
      std::string upper, lower, middle;
      for (const LabPoint* p : known) {
        const char* pen = upper.empty() ? "M" : "L";
        upper += fmt::format("{}{:.1f} {:.1f}", pen, px(p->x), py(p->band.high));
        middle += fmt::format("{}{:.1f} {:.1f}", pen, px(p->x), py(p->band.expected));
        lower = fmt::format("L{:.1f} {:.1f}", px(p->x), py(p->band.low)) + lower;
      }
      band(s, upper + lower + "Z");
      predicted(s, middle);
    }
    for (const LabPoint& p : result_.series[s].points) mark(s, p, px(p.x), py(p.measured));
  }

  SvgBox area_{};
};

// A row for each label: the value axis runs to the right.
class CategoryPicture : public LabPicture {
 public:
  explicit CategoryPicture(const LabResult& result) : LabPicture(result) {
    double widest = 0;
    for (const LabSeries& series : result.series) {
      for (const LabPoint& p : series.points) {
        if (std::ranges::find(labels_, p.label) == labels_.end()) labels_.push_back(p.label);
        widest = std::max(widest, svg_text_width(p.label));
      }
    }
    const double left = widest + 28;
    const double top = result.series.size() > 1 ? legend(left, 22) + 12 : 12;
    const double bottom = top + kRow * double(labels_.size()) + 8;
    height_ = bottom + 48;
    area_ = {left, top, kWidth - 24, bottom};
    const Scale scale(result.y, values());
    for (const Tick& tick : scale.ticks(10)) {
      const double at = left + tick.at * (area_.right - left);
      rule(at, top, at, bottom);
      text(at, bottom + 17, "tick", "middle", tick.label);
    }
    frame(area_);
    text((left + area_.right) / 2, height_ - 10, "axis", "middle", result.y.label);
    for (size_t i = 0; i < labels_.size(); ++i) {
      text(left - 10, row(i) + 4, "name", "end", labels_[i]);
    }
    for (size_t s = 0; s < result.series.size(); ++s) draw(s, scale);
  }

 private:
  static constexpr double kRow = 30;
  double row(size_t i) const { return area_.top + 4 + kRow * (double(i) + 0.5); }

  void draw(size_t s, const Scale& scale) {
    const auto px = [&](double value) { return on(scale, value, area_.left, area_.right); };
    for (const LabPoint& p : result_.series[s].points) {
      const double y = row(size_t(std::ranges::find(labels_, p.label) - labels_.begin()));
      if (p.predicted()) {
        band(s, fmt::format("M{:.1f} {:.1f}H{:.1f}v20H{:.1f}Z", px(p.band.low), y - 10,
                            px(p.band.high), px(p.band.low)));
        predicted(s, fmt::format("M{:.1f} {:.1f}v24", px(p.band.expected), y - 12));
      }
      mark(s, p, px(p.measured), y);
    }
  }

  std::vector<std::string> labels_;
  SvgBox area_{};
};

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string lab_svg(const Experiment& experiment, const LabResult& result) {
  const bool any =
      std::ranges::any_of(result.series, [](const LabSeries& s) { return !s.points.empty(); });
  if (!any) return "";
  return result.categories ? CategoryPicture(result).document(experiment)
                           : NumberPicture(result).document(experiment);
}

}  // namespace ridge
