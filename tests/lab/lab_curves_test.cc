#include "lab/lab_curves.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

LabSeries curve(std::initializer_list<std::pair<double, double>> points) {
  LabSeries series;
  for (const auto& [x, y] : points) {
    LabPoint point;
    point.x = x;
    point.measured = y;
    series.points.push_back(point);
  }
  return series;
}

TEST(LabCurves, AValueIsThatOfItsPointOrNone) {
  const LabSeries series = curve({{1, 5}, {2, 6}});
  EXPECT_EQ(measured_at(series, 2), 6);
  EXPECT_EQ(measured_at(series, 3), 0);
}

TEST(LabCurves, TheFirstPointNearTheLargestKeepsItsOwnValue) {
  const LabSeries series = curve({{1, 2}, {2, 9}, {4, 10}});
  EXPECT_EQ(largest_of(series).x, 4);
  EXPECT_EQ(first_near_largest(series, 0.8).x, 2);
  EXPECT_EQ(first_near_largest(series, 0.8).measured, 9);
}

TEST(LabCurves, PointsAroundAPlaceAreItsNeighbours) {
  const LabSeries series = curve({{1, 2}, {2, 9}, {4, 10}});
  EXPECT_EQ(points_around(series, 3), (LabPoints{&series.points[1], &series.points[2]}));
  EXPECT_EQ(points_around(series, 9), (LabPoints{&series.points[2]}));
}

TEST(LabCurves, ALineOnLogarithmsIsCrossedWhereItIs) {
  const LabSeries series = curve({{1, 10}, {4, 40}, {16, 160}});
  EXPECT_NEAR(crossing(series, 20), 2, 1e-9);
  EXPECT_NEAR(crossing(series, 80), 8, 1e-9);
  EXPECT_EQ(crossing(series, 1), 1);      // below all of it
  EXPECT_EQ(crossing(series, 1000), 16);  // beyond all of it
}

TEST(LabCurves, TwoSeriesAreEvenWhereTheirRatioIsOne) {
  const LabSeries flat = curve({{1, 8}, {4, 8}, {16, 8}});
  EXPECT_NEAR(break_even(flat, curve({{1, 2}, {4, 8}, {16, 32}})), 4, 1e-9);
  EXPECT_NEAR(break_even(flat, curve({{1, 4}, {4, 16}, {16, 64}})), 2, 1e-9);
  EXPECT_EQ(break_even(flat, curve({{1, 9}, {4, 16}, {16, 64}})), 1);
  EXPECT_EQ(break_even(flat, curve({{1, 1}, {4, 2}, {16, 3}})), 0);
}

}  // namespace
}  // namespace ridge
