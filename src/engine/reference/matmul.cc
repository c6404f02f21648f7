#include "engine/reference/matmul.h"

#include "engine/reference/activation.h"

namespace ridge::reference {
namespace {

double dot(const Vector& w, const float* x) {
  double sum = 0;
  for (size_t c = 0; c < w.size(); ++c) sum += double(w[c]) * double(x[c]);
  return sum;
}

void get_row(const Matrix& matrix, int64_t row, Vector& to) {
  to.resize(static_cast<size_t>(matrix.columns));
  dequantize(matrix.storage, matrix.row(row), matrix.columns, to.data());
}

}  // namespace

void multiply(const Gemm& p) {
  Vector w, up;
  for (int64_t r = 0; r < p.w->rows; ++r) {
    get_row(*p.w, r, w);
    if (p.up) get_row(*p.up, r, up);
    for (int t = 0; t < p.tokens; ++t) {
      const float* const x = p.x + t * p.x_stride;
      double sum = dot(w, x) + (p.bias ? double(p.bias[r]) : 0);
      if (p.up) {
        const double other = dot(up, x) + (p.up_bias ? double(p.up_bias[r]) : 0);
        sum = gate_times_up(p.activation, sum, other);
      }
      float& y = p.y[t * p.stride + r];
      y = static_cast<float>(p.accumulate ? double(y) + sum : sum);
    }
  }
}

}  // namespace ridge::reference
