#include "fit/optimise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace ridge {
namespace {

double reflect(double x) {
  x = std::fmod(std::fabs(x), 2.0);
  return x > 1 ? 2 - x : x;
}

// Box-Muller on our own uniform draws: std::normal_distribution may differ between libraries.
class Normal {
 public:
  explicit Normal(uint64_t seed) : engine_(seed) {}
  double operator()() {
    const double u = uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
  }

 private:
  double uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }
  std::mt19937_64 engine_;
};

// Lower Cholesky factor of a positive definite matrix; a small ridge keeps it so.
void cholesky(const std::vector<double>& c, std::vector<double>& a, size_t n) {
  std::fill(a.begin(), a.end(), 0.0);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double sum = c[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / a[j * n + j];
    }
}

}  // namespace

Optimum minimise(const std::function<double(const std::vector<double>&)>& objective,
                 std::vector<double> start, double step, int evaluations, uint64_t seed) {
  const size_t n = start.size();
  const double dim = static_cast<double>(n);
  const size_t population = 4 + static_cast<size_t>(4 * std::log(dim + 1)),
               parents = population / 2;
  std::vector<double> weight(parents);
  for (size_t i = 0; i < parents; ++i)
    weight[i] = std::log(static_cast<double>(parents) + 0.5) - std::log(static_cast<double>(i + 1));
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double squares = 0;
  for (double& w : weight) w /= total, squares += w * w;
  // Constants as in Hansen's tutorial (2016), table 1.
  const double mu = 1 / squares;
  const double cs = (mu + 2) / (dim + mu + 5), cc = (4 + mu / dim) / (dim + 4 + 2 * mu / dim);
  const double c1 = 2 / ((dim + 1.3) * (dim + 1.3) + mu);
  const double cm = std::min(1 - c1, 2 * (mu - 2 + 1 / mu) / ((dim + 2) * (dim + 2) + mu));
  const double damping = 1 + 2 * std::max(0.0, std::sqrt((mu - 1) / (dim + 1)) - 1) + cs;
  const double expected = std::sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim * dim));

  Normal normal(seed);
  std::vector<double> c(n * n, 0), a(n * n), ps(n, 0), pc(n, 0), mean = start;
  for (size_t i = 0; i < n; ++i) c[i * n + i] = 1;
  Optimum best{start, objective(start)};
  struct Candidate {
    std::vector<double> z, y;
    double value;
  };
  std::vector<Candidate> pool(population);
  std::vector<size_t> order(population);
  std::vector<double> x(n), zw(n), yw(n);
  for (int used = 1; used < evaluations;) {
    cholesky(c, a, n);
    for (Candidate& one : pool) {
      one.z.resize(n);
      one.y.assign(n, 0);
      for (double& v : one.z) v = normal();
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j <= i; ++j) one.y[i] += a[i * n + j] * one.z[j];
        x[i] = reflect(mean[i] + step * one.y[i]);
      }
      one.value = objective(x);
      ++used;
      if (one.value < best.value) best = {x, one.value};
    }
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t l, size_t r) { return pool[l].value < pool[r].value; });
    std::fill(zw.begin(), zw.end(), 0.0);
    std::fill(yw.begin(), yw.end(), 0.0);
    for (size_t k = 0; k < parents; ++k)
      for (size_t i = 0; i < n; ++i) {
        zw[i] += weight[k] * pool[order[k]].z[i];
        yw[i] += weight[k] * pool[order[k]].y[i];
      }
    double length = 0;
    for (size_t i = 0; i < n; ++i) {
      mean[i] = reflect(mean[i] + step * yw[i]);
      ps[i] = (1 - cs) * ps[i] + std::sqrt(cs * (2 - cs) * mu) * zw[i];
      length += ps[i] * ps[i];
    }
    length = std::sqrt(length);
    step *= std::exp(std::min(1.0, cs / damping * (length / expected - 1)));
    step = std::clamp(step, 1e-4, 0.5);
    const bool steady = length < (1.4 + 2 / (dim + 1)) * expected * 1.5;
    for (size_t i = 0; i < n; ++i)
      pc[i] = (1 - cc) * pc[i] + (steady ? std::sqrt(cc * (2 - cc) * mu) * yw[i] : 0);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j <= i; ++j) {
        double rank = 0;
        for (size_t k = 0; k < parents; ++k)
          rank += weight[k] * pool[order[k]].y[i] * pool[order[k]].y[j];
        c[i * n + j] = (1 - c1 - cm) * c[i * n + j] + c1 * pc[i] * pc[j] + cm * rank;
        c[j * n + i] = c[i * n + j];
      }
  }
  return best;
}

}  // namespace ridge
