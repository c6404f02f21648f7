// Reading measured series: values, and where they pass one another.
#pragma once

#include "lab/experiment.h"

namespace ridge {

// Of the point at exactly x; 0: there is none.
double measured_at(const LabSeries& series, double x);

// The point with the largest value, and the first one that reaches `share` of it.
const LabPoint& largest_of(const LabSeries& series);
const LabPoint& first_near_largest(const LabSeries& series, double share);

// The point at exactly x, or the first one.
const LabPoint* point_at(const LabSeries& series, double x);

// The last point at or below x and the first one above it: those that crossing() rests on.
LabPoints points_around(const LabSeries& series, double x);

// Where the rising values of a series pass `level`: by interpolation on logarithms; the last x
// where they do not.
double crossing(const LabSeries& rising, double level);

// Where `rising` begins to exceed `other`, which has the same x: by interpolation on logarithms; 0:
// not within the sweep.
double break_even(const LabSeries& other, const LabSeries& rising);

}  // namespace ridge
