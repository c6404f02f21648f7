#include "engine/reference/norm.h"

#include <cmath>

namespace ridge::reference {

void rms_norm(const float* x, int columns, const float* w, float eps, float* y) {
  double squares = 0;
  for (int c = 0; c < columns; ++c) squares += double(x[c]) * double(x[c]);
  const double factor = 1 / std::sqrt(squares / columns + double(eps));
  for (int c = 0; c < columns; ++c) y[c] = static_cast<float>(double(x[c]) * factor * double(w[c]));
}

}  // namespace ridge::reference
