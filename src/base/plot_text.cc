// draw_text: lines in braille dots, eight to a character, letters and numbers over them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "base/plot.h"
#include "base/scale.h"
#include "base/text.h"

namespace ridge {
namespace {

constexpr int kDotsX = 2, kDotsY = 4;  // of one braille character

constexpr std::array kSeriesColours = {Colour::cyan,  Colour::yellow, Colour::magenta,
                                       Colour::green, Colour::blue,   Colour::red};

Colour series_colour(const Plot& plot, size_t series) {
  const int own = plot.series[series].colour;
  return kSeriesColours[(own >= 0 ? static_cast<size_t>(own) : series) % kSeriesColours.size()];
}

std::string series_letter(size_t series) {
  return std::string(1, static_cast<char>('A' + series % 26));
}

struct Cell {
  uint8_t dots = 0;
  std::string glyph;  // covers the dots
  Colour colour = Colour::none;
};

// Bits of U+2800: columns hold dots 1-3 and 4-6 from the top, then 7 and 8 below.
uint8_t dot_bit(int x, int y) {
  constexpr uint8_t kBits[kDotsY][kDotsX] = {
      {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  return kBits[y][x];
}

std::string braille(uint8_t dots) {
  // UTF-8 of U+2800 + dots.
  return {'\xE2', static_cast<char>(0xA0 | (dots >> 6)), static_cast<char>(0x80 | (dots & 0x3F))};
}

struct Place {
  int column, row;
};

class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(stride() * static_cast<size_t>(rows)) {}

  void line(const Segment& segment, Colour colour, bool dashed, int& pen);
  // Puts a label at the nearest free place; says whether there was one.
  bool label(Place wanted, std::string_view text, Colour colour);
  void faint(Place place, std::string_view glyph);
  std::string row(int row) const;
  int columns() const { return columns_; }
  Place cell_of(const Point& point) const {
    return {to_dot(point.x, columns_ * kDotsX) / kDotsX,
            to_dot(1 - point.y, rows_ * kDotsY) / kDotsY};
  }

 private:
  static constexpr int kGutter = 2;  // right of the frame, for the letters of lines that reach it

  static int to_dot(double share, int dots) {
    return std::clamp(static_cast<int>(std::lround(share * (dots - 1))), 0, dots - 1);
  }
  Cell& cell(Place place) {
    return cells_[static_cast<size_t>(place.row) * stride() + static_cast<size_t>(place.column)];
  }
  size_t stride() const { return static_cast<size_t>(columns_ + kGutter); }
  bool is_free(Place place, int width);

  int columns_, rows_;
  std::vector<Cell> cells_;
};

// `pen` counts dots from one segment to the next, so that dashes run evenly round corners.
void Canvas::line(const Segment& segment, Colour colour, bool dashed, int& pen) {
  constexpr int kDash = 4, kGap = 4;
  const int x0 = to_dot(segment.from.x, columns_ * kDotsX);
  const int y0 = to_dot(1 - segment.from.y, rows_ * kDotsY);
  const int x1 = to_dot(segment.to.x, columns_ * kDotsX);
  const int y1 = to_dot(1 - segment.to.y, rows_ * kDotsY);
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i, ++pen) {
    if (dashed && pen % (kDash + kGap) >= kDash) continue;
    const double share = static_cast<double>(i) / steps;
    const int x = static_cast<int>(std::lround(x0 + share * (x1 - x0)));
    const int y = static_cast<int>(std::lround(y0 + share * (y1 - y0)));
    Cell& target = cell({x / kDotsX, y / kDotsY});
    // Where lines share a character the first one drawn keeps it.
    if (target.dots == 0) target.colour = colour;
    target.dots |= dot_bit(x % kDotsX, y % kDotsY);
  }
}

bool Canvas::is_free(Place place, int width) {
  if (place.row < 0 || place.row >= rows_ || place.column < 0) return false;
  if (place.column + width > columns_ + kGutter) return false;
  // One blank on both sides keeps 1 and 2 from reading as 12.
  const int last = std::min(place.column + width, columns_ + kGutter - 1);
  for (int column = std::max(place.column - 1, 0); column <= last; ++column) {
    if (!cell({column, place.row}).glyph.empty()) return false;
  }
  return true;
}

bool Canvas::label(Place wanted, std::string_view text, Colour colour) {
  const int width = static_cast<int>(text.size());
  constexpr int kReach = 6;
  Place best{};
  int nearest = 1 << 20;
  for (int dy = -kReach; dy <= kReach; ++dy) {
    for (int dx = -kReach; dx <= kReach; ++dx) {
      const Place place{wanted.column + dx, wanted.row + dy};
      if (!is_free(place, width)) continue;
      // A character is about twice as tall as it is wide; whoever has to move avoids lines.
      const bool moved = dx != 0 || dy != 0;
      const int distance = dx * dx + 4 * dy * dy + (moved && cell(place).dots != 0 ? 4 : 0);
      if (distance < nearest) {
        nearest = distance;
        best = place;
      }
    }
  }
  if (nearest == 1 << 20) return false;
  for (const char c : text) {
    Cell& target = cell(best);
    target.glyph = c;
    target.colour = colour;
    ++best.column;
  }
  return true;
}

void Canvas::faint(Place place, std::string_view glyph) {
  Cell& target = cell(place);
  if (target.dots != 0 || !target.glyph.empty()) return;
  target.glyph = glyph;
  target.colour = Colour::dim;
}

std::string Canvas::row(int row) const {
  std::string text;
  const size_t start = static_cast<size_t>(row) * stride();
  for (size_t i = start; i < start + stride(); ++i) {
    const Cell& shown = cells_[i];
    if (!shown.glyph.empty()) {
      text += paint(shown.colour, shown.glyph);
    } else if (shown.dots != 0) {
      text += paint(shown.colour, braille(shown.dots));
    } else {
      text += ' ';
    }
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

void draw_series(const Plot& plot, const Frame& frame, Canvas& canvas) {
  std::vector<std::optional<Place>> ends(plot.series.size());
  for (size_t s = 0; s < plot.series.size(); ++s) {
    int pen = 0;
    for (const Segment& segment : visible_segments(plot.series[s], frame)) {
      canvas.line(segment, series_colour(plot, s), plot.series[s].dashed, pen);
      ends[s] = canvas.cell_of(segment.to);
    }
  }
  for (size_t s = 0; s < ends.size(); ++s) {
    if (!ends[s]) continue;
    canvas.label({ends[s]->column + 1, ends[s]->row}, series_letter(s), series_colour(plot, s));
  }
}

// Says for each marker whether it is on the canvas.
std::vector<bool> draw_markers(const Plot& plot, const Frame& frame, Canvas& canvas) {
  std::vector<bool> drawn(plot.markers.size());
  for (size_t m = 0; m < plot.markers.size(); ++m) {
    const auto point = frame.place(plot.markers[m].x, plot.markers[m].y);
    if (!point || !inside(*point)) continue;
    drawn[m] = canvas.label(canvas.cell_of(*point), std::to_string(m + 1), Colour::bold);
  }
  return drawn;
}

// The axis line and, below it, as many tick labels as fit without touching.
std::string bottom_axis(const Plot& plot, const std::vector<Tick>& ticks, const Canvas& canvas,
                        int left) {
  const int columns = canvas.columns();
  std::string line, labels;
  int drawn = 0;
  for (const Tick& tick : ticks) {
    const int column = canvas.cell_of({tick.at, 0}).column;
    for (; drawn < column; ++drawn) line += "─";
    line += "┬";
    ++drawn;
    const auto start = static_cast<size_t>(left + 1 + column) - tick.label.size() / 2;
    if (!labels.empty() && start <= labels.size()) continue;
    labels.resize(start, ' ');
    labels += tick.label;
  }
  for (; drawn < columns; ++drawn) line += "─";
  std::string axis = fmt::format("{:>{}}└{}\n{}\n", "", left, line, labels);
  if (plot.x.label.empty()) return axis;
  const size_t used = display_width(plot.x.label);
  const auto middle = static_cast<size_t>(left + 1 + columns / 2);
  const std::string pad(middle > used / 2 ? middle - used / 2 : 0, ' ');
  return axis + pad + paint(Colour::dim, plot.x.label) + "\n";
}

// Entries side by side in columns of equal width, as many as fit.
std::string in_columns(const std::vector<std::string>& entries, int width) {
  size_t widest = 0;
  for (const std::string& entry : entries) widest = std::max(widest, display_width(entry));
  const size_t columns = std::clamp<size_t>(static_cast<size_t>(width) / (widest + 3), 1,
                                            std::max<size_t>(entries.size(), 1));
  const size_t rows = (entries.size() + columns - 1) / columns;
  std::string text;
  for (size_t row = 0; row < rows; ++row) {
    std::string line;
    for (size_t i = row; i < entries.size(); i += rows) {
      line += "  " + entries[i];
      if (i + rows < entries.size()) line.append(widest - display_width(entries[i]) + 1, ' ');
    }
    text += line + "\n";
  }
  return text;
}

std::string legend(const Plot& plot, const std::vector<bool>& drawn, int width) {
  std::vector<std::string> lines, dots;
  for (size_t s = 0; s < plot.series.size(); ++s) {
    lines.push_back(paint(series_colour(plot, s), series_letter(s)) + " " + plot.series[s].label);
  }
  for (size_t m = 0; m < plot.markers.size(); ++m) {
    dots.push_back(fmt::format("{} {}{}", paint(Colour::bold, fmt::format("{:>2}", m + 1)),
                               plot.markers[m].label, drawn[m] ? "" : " (off the plot)"));
  }
  return in_columns(lines, width) + in_columns(dots, width);
}

}  // namespace

std::string draw_text(const Plot& plot, int width, int height) {
  const int rows = std::max(height - 4, 4);  // title, axis, tick labels, axis label
  const Frame frame(plot);
  const std::vector<Tick> y_ticks = frame.y.ticks(std::max(rows / 2, 2));
  int left = 1;
  for (const Tick& tick : y_ticks) left = std::max(left, static_cast<int>(tick.label.size()) + 1);
  const int columns = std::max(width - left - 3, 16);
  const std::vector<Tick> x_ticks = frame.x.ticks(std::max(columns / 8, 2));

  Canvas canvas(columns, rows);
  draw_series(plot, frame, canvas);
  const std::vector<bool> drawn = draw_markers(plot, frame, canvas);
  std::vector<std::string> y_labels(static_cast<size_t>(rows));
  for (const Tick& tick : y_ticks) {
    y_labels[static_cast<size_t>(canvas.cell_of({0, tick.at}).row)] = tick.label;
    for (const Tick& across : x_ticks) canvas.faint(canvas.cell_of({across.at, tick.at}), "·");
  }

  std::string out;
  if (!plot.title.empty()) out += paint(Colour::bold, plot.title) + "\n";
  if (!plot.y.label.empty()) out += paint(Colour::dim, plot.y.label) + "\n";
  for (int row = 0; row < rows; ++row) {
    const std::string& label = y_labels[static_cast<size_t>(row)];
    out += fmt::format("{:>{}}{}{}\n", label, left, label.empty() ? "│" : "┤", canvas.row(row));
  }
  out += bottom_axis(plot, x_ticks, canvas, left);
  return out + legend(plot, drawn, width);
}

}  // namespace ridge
