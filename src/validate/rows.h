// Errors of a set of measured rows, kept small, and their statistics.
#pragma once

#include <vector>

#include "validate/score.h"

namespace ridge {

struct Rows {
  std::vector<float> errors, ratios;  // quantiles need them all
  double naive = 0;
  size_t outside = 0, in_band = 0;

  void add(double measured, double predicted, double roof, const Band& band);
  void merge(const Rows& other);
};

ScoreStats stats_of(const Rows& rows);

// Row-weighted means, as the data's baselines are.
void add_weighted(ScoreStats& total, const ScoreStats& part);

}  // namespace ridge
