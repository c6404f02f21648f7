#include "base/plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/scale.h"
#include "base/text.h"

namespace ridge {
namespace {

size_t count(const std::string& text, std::string_view piece) {
  size_t found = 0;
  for (size_t at = text.find(piece); at != text.npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

bool has(const std::string& text, std::string_view piece) { return count(text, piece) > 0; }

Plot roofline() {
  Plot plot;
  plot.title = "Roofline";
  plot.x = {"FLOP/byte", true, 0.1, 10000};
  plot.y = {"FLOP/s", true, 1e10, 1e15};
  plot.series = {{"bf16", {0.1, 300, 10000}, {3e11, 9e14, 9e14}, false},
                 {"fp32", {0.1, 20, 10000}, {3e11, 6e13, 6e13}, true}};
  plot.markers = {{"attention", 7, 1.9e13, 0.3}, {"mlp", 15, 4e13, 0.7}};
  return plot;
}

std::vector<std::string> labels(const Axis& axis, const std::vector<double>& values, int most) {
  std::vector<std::string> texts;
  for (const Tick& tick : Scale(axis, values).ticks(most)) texts.push_back(tick.label);
  return texts;
}

using Labels = std::vector<std::string>;

TEST(Scale, LogTicksAreDecadesWithShortLabels) {
  EXPECT_EQ(labels({"", true, 0.1, 1e4}, {}, 8), Labels({"0.1", "1", "10", "100", "1 k", "10 k"}));
  EXPECT_EQ(labels({"", true, 1e12, 1e15}, {}, 5), Labels({"1 T", "10 T", "100 T", "1 P"}));
}

TEST(Scale, LogTicksThinOutAndFillIn) {
  EXPECT_LE(labels({"", true, 1e-20, 1e20}, {}, 6).size(), 7u);
  EXPECT_EQ(labels({"", true, 1, 10}, {}, 8), Labels({"1", "2", "5", "10"}));
}

TEST(Scale, LinearTicksAreRound) {
  EXPECT_EQ(labels({"", false, 0, 1000}, {}, 6), Labels({"0", "200", "400", "600", "800", "1 k"}));
}

TEST(Scale, EndsComeFromTheDataWithRoom) {
  const Scale scale({"", false, 0, 0}, {10, 20, NAN, INFINITY});
  EXPECT_GT(scale.at(10), 0);
  EXPECT_LT(scale.at(20), 1);
  EXPECT_NEAR(scale.at(15), 0.5, 1e-12);
}

TEST(Scale, SingleValueSitsInTheMiddle) {
  EXPECT_NEAR(Scale({"", true, 0, 0}, {1e12}).at(1e12), 0.5, 1e-12);
  EXPECT_NEAR(Scale({"", false, 0, 0}, {0}).at(0), 0.5, 1e-12);
}

TEST(Scale, LogRefusesWhatHasNoLogarithm) {
  const Scale scale({"", true, 0, 0}, {-1, 0, 1, 10});
  EXPECT_FALSE(scale.accepts(0));
  EXPECT_FALSE(scale.accepts(-1));
  EXPECT_FALSE(scale.accepts(NAN));
  EXPECT_TRUE(scale.accepts(1e-3));
}

TEST(Clip, CutsAtTheFrame) {
  const auto part = clip({{-1, 0.5}, {2, 0.5}});
  ASSERT_TRUE(part);
  EXPECT_NEAR(part->from.x, 0, 1e-6);
  EXPECT_NEAR(part->to.x, 1, 1e-6);
  EXPECT_FALSE(clip({{-1, 2}, {2, 2}}));
  EXPECT_FALSE(clip({{-1, 0.5}, {0.5, 3}}));  // passes the corner outside
}

TEST(DrawText, ShowsAxesLinesLettersAndMarkers) {
  force_colour(false);
  const std::string text = draw_text(roofline());
  for (const char* piece : {"Roofline", "FLOP/byte", "FLOP/s", "0.1", "10 k", "1 P", "100 T",
                            "A bf16", "B fp32", "1 attention", "2 mlp"}) {
    EXPECT_TRUE(has(text, piece)) << piece << "\n" << text;
  }
}

TEST(DrawText, KeepsTheWidth) {
  force_colour(false);
  std::istringstream lines(draw_text(roofline(), 60, 16));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 61u) << line;
}

TEST(DrawText, MarkersAtOnePlaceAllShow) {
  force_colour(false);
  Plot plot;
  for (int i = 0; i < 9; ++i) plot.markers.push_back({"m", 1, 1, 1});
  const std::string text = draw_text(plot);
  EXPECT_FALSE(has(text, "off the plot")) << text;
}

TEST(DrawText, MarkerBeyondTheAxesIsListedAsOff) {
  force_colour(false);
  Plot plot = roofline();
  plot.markers.push_back({"far", 1e9, 1e9, 1});
  plot.markers.push_back({"nowhere", -1, NAN, 1});
  EXPECT_EQ(count(draw_text(plot), "(off the plot)"), 2u);
}

TEST(DrawSvg, HoldsOnePathPerLineAndOneDotPerMarker) {
  const std::string svg = draw_svg(roofline());
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_TRUE(has(svg, "viewBox=\"0 0 900 560\""));
  EXPECT_TRUE(has(svg, "prefers-color-scheme"));
  EXPECT_EQ(count(svg, "<path "), 4u);  // and one each in the legend
  EXPECT_EQ(count(svg, "<circle "), 2u);
  EXPECT_TRUE(has(svg, "stroke-dasharray"));
}

TEST(DrawSvg, EscapesText) {
  Plot plot = roofline();
  plot.title = "<script>&\"\x1b";
  const std::string svg = draw_svg(plot);
  EXPECT_FALSE(has(svg, "<script>"));
  EXPECT_TRUE(has(svg, "&lt;script&gt;&amp;&quot;"));
  EXPECT_FALSE(has(svg, "\x1b"));
}

TEST(Draw, SurvivesPoorData) {
  force_colour(false);
  Plot single, useless, uneven, tiny = roofline();
  single.series = {{"one", {5}, {7}, false}};
  useless.series = {{"bad", {NAN, -1, 0, INFINITY}, {1, 1, 1, 1}, false}};
  useless.markers = {{"bad", 0, 0, NAN}};
  uneven.series = {{"uneven", {1, 2, 3}, {1e308, 2}, false}};
  for (const Plot& plot : {Plot{}, single, useless, uneven, tiny}) {
    for (const int size : {-5, 0, 1, 10, 200}) {
      EXPECT_FALSE(draw_text(plot, size, size).empty());
      const std::string svg = draw_svg(plot, size, size);
      EXPECT_FALSE(has(svg, "nan") || has(svg, "inf")) << svg;
    }
  }
}

TEST(Draw, UnshowablePointBreaksTheLine) {
  Plot plot;
  plot.series = {{"gap", {1, 2, 3, 4, 5}, {1, 2, NAN, 4, 5}, false}};
  EXPECT_EQ(visible_segments(plot.series[0], Frame(plot)).size(), 2u);
}

}  // namespace
}  // namespace ridge
