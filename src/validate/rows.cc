#include "validate/rows.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

float quantile(std::vector<float> values, double q) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

void Rows::add(double measured, double predicted, double roof, const Band& band) {
  const double ratio = measured / predicted;
  errors.push_back(static_cast<float>(std::fabs(predicted / measured - 1)));
  ratios.push_back(static_cast<float>(ratio));
  naive += std::fabs(roof / measured - 1);
  outside += measured < roof;
  in_band += ratio >= band.low && ratio <= band.high;
}

void Rows::merge(const Rows& other) {
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
  ratios.insert(ratios.end(), other.ratios.begin(), other.ratios.end());
  naive += other.naive;
  outside += other.outside;
  in_band += other.in_band;
}

ScoreStats stats_of(const Rows& rows) {
  ScoreStats stats;
  stats.rows = rows.errors.size();
  if (stats.rows == 0) return stats;
  const double count = static_cast<double>(stats.rows);
  double sum = 0;
  for (float error : rows.errors) sum += error;
  stats.mape = 100 * sum / count;
  stats.median = 100.0 * quantile(rows.errors, 0.5);
  stats.p90 = 100.0 * quantile(rows.errors, 0.9);
  stats.bias = quantile(rows.ratios, 0.5);
  stats.naive_mape = 100 * rows.naive / count;
  stats.outside_physics = rows.outside;
  stats.in_band = static_cast<double>(rows.in_band) / count;
  return stats;
}

// Row-weighted means, as the data's baselines are.
void add_weighted(ScoreStats& total, const ScoreStats& part) {
  const double old = static_cast<double>(total.rows), fresh = static_cast<double>(part.rows);
  if (old + fresh == 0) return;
  const auto mean = [&](double a, double b) { return (a * old + b * fresh) / (old + fresh); };
  total.mape = mean(total.mape, part.mape);
  total.median = mean(total.median, part.median);
  total.p90 = mean(total.p90, part.p90);
  total.bias = mean(total.bias, part.bias);
  total.naive_mape = mean(total.naive_mape, part.naive_mape);
  total.in_band = mean(total.in_band, part.in_band);
  total.rows += part.rows;
  total.outside_physics += part.outside_physics;
}

}  // namespace ridge
