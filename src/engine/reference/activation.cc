#include "engine/reference/activation.h"

#include <algorithm>
#include <cmath>

namespace ridge::reference {

double silu(double x) { return x / (1 + std::exp(-x)); }

double gelu_tanh(double x) {
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return silu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::clamped_swiglu:
      break;  // has no form without `up`
  }
  return x;
}

double gate_times_up(Activation activation, double gate, double up) {
  if (activation != Activation::clamped_swiglu) return activate(activation, gate) * up;
  const double limit = double(kSwigluLimit), slope = double(kSwigluSlope);
  const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  return g / (1 + std::exp(-slope * g)) * (u + 1);
}

void gated(Activation activation, const float* gate, const float* up, int columns, float* y) {
  for (int c = 0; c < columns; ++c) {
    y[c] = static_cast<float>(gate_times_up(activation, double(gate[c]), double(up[c])));
  }
}

}  // namespace ridge::reference
