#include "lab/lab_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/scale.h"
#include "base/text.h"
#include "base/units.h"

namespace ridge {
namespace {

bool has_points(const LabResult& result) {
  return std::ranges::any_of(result.series, [](const LabSeries& s) { return !s.points.empty(); });
}

// Everything that the value axis must show.
std::vector<double> shown_values(const LabResult& result) {
  std::vector<double> values;
  for (const LabSeries& series : result.series) {
    for (const LabPoint& p : series.points) {
      values.push_back(p.measured);
      if (p.predicted()) values.insert(values.end(), {p.band.low, p.band.expected, p.band.high});
    }
  }
  if (result.y.log) std::erase_if(values, [](double value) { return value <= 0; });
  return values;
}

// A value's place on an axis, 0 to 1: what the axis cannot show lies at its ends.
double share_at(const Scale& scale, double value) {
  return scale.accepts(value) ? std::clamp(scale.at(value), 0.0, 1.0) : 0;
}

// The rows of a picture of categories: each label once, with its points.
struct CategoryRow {
  std::string label;
  struct Mark {
    size_t series;
    const LabPoint* point;
  };
  std::vector<Mark> marks;
};

std::vector<CategoryRow> category_rows(const LabResult& result) {
  std::vector<CategoryRow> rows;
  for (size_t s = 0; s < result.series.size(); ++s) {
    for (const LabPoint& point : result.series[s].points) {
      const std::string label = point.label.empty() ? pretty_number(point.x) : point.label;
      auto row = std::ranges::find(rows, label, &CategoryRow::label);
      if (row == rows.end()) row = rows.insert(rows.end(), {label, {}});
      row->marks.push_back({s, &point});
    }
  }
  return rows;
}

// "  sequential  ░░░┃░░●░   28.3"
std::string text_bar(const LabPoint& point, const Scale& scale, int columns) {
  std::vector<std::string> cells(size_t(columns), " ");
  const auto cell_of = [&](double value) {
    return size_t(std::lround(share_at(scale, value) * (columns - 1)));
  };
  if (point.predicted()) {
    for (size_t c = cell_of(point.band.low); c <= cell_of(point.band.high); ++c) cells[c] = "░";
    cells[cell_of(point.band.expected)] = "┃";
  }
  cells[cell_of(point.measured)] = point.doubtful() ? "○" : "●";
  std::string text;
  for (const std::string& cell : cells) text += cell;
  return text;
}

std::string category_text(const Experiment& experiment, const LabResult& result, int width) {
  const std::vector<CategoryRow> rows = category_rows(result);
  const bool several = result.series.size() > 1;
  const auto name_of = [&](const CategoryRow& row, const CategoryRow::Mark& mark) {
    return several ? row.label + ", " + result.series[mark.series].name : row.label;
  };
  size_t widest = 0;
  for (const CategoryRow& row : rows) {
    for (const auto& mark : row.marks) {
      widest = std::max(widest, display_width(name_of(row, mark)));
    }
  }
  constexpr int kNumber = 10;
  const int columns = std::max(20, width - int(widest) - kNumber - 2);
  const Scale scale(result.y, shown_values(result));
  std::string out = paint(Colour::bold, experiment.question) + "\n";
  out += paint(Colour::dim, result.y.label) + "\n";
  for (const CategoryRow& row : rows) {
    for (const auto& mark : row.marks) {
      const std::string name = name_of(row, mark);
      out += name + std::string(widest - display_width(name), ' ') + " │" +
             text_bar(*mark.point, scale, columns) + "│ " + pretty_number(mark.point->measured) +
             "\n";
    }
  }
  std::string labels;
  for (const Tick& tick : scale.ticks(std::max(2, columns / 10))) {
    const auto at = size_t(std::lround(tick.at * (columns - 1)));
    if (!labels.empty() && at <= labels.size()) continue;
    labels.resize(at, ' ');
    labels += tick.label;
  }
  out += std::string(widest + 2, ' ') + labels + "\n";
  return out + paint(Colour::dim, "░ band, ┃ predicted, ● measured, ○ measured but doubtful") +
         "\n";
}

}  // namespace

Plot lab_plot(const Experiment& experiment, const LabResult& result) {
  Plot plot;
  plot.title = experiment.question;
  plot.x = result.x;
  plot.y = result.y;
  for (const LabSeries& series : result.series) {
    Series line;
    line.label = series.name + ", predicted";
    line.dashed = true;
    Series dots, circles;
    dots.label = series.name;
    circles.label = series.name + ", doubtful";
    dots.points = circles.points = circles.hollow = true;
    line.colour = dots.colour = circles.colour = int(&series - result.series.data());
    for (const LabPoint& point : series.points) {
      if (point.predicted()) {
        line.x.push_back(point.x);
        line.y.push_back(point.band.expected);
      }
      Series& to = point.doubtful() ? circles : dots;
      to.x.push_back(point.x);
      to.y.push_back(point.measured);
    }
    for (Series* part : {&line, &dots, &circles}) {
      if (!part->x.empty()) plot.series.push_back(std::move(*part));
    }
  }
  return plot;
}

std::string lab_text_figure(const Experiment& experiment, const LabResult& result, int width) {
  if (!has_points(result)) return "";
  if (result.categories) return category_text(experiment, result, width);
  return draw_text(lab_plot(experiment, result), width);
}

}  // namespace ridge
