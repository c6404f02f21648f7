#include "engine/reference/activation.h"

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
  }
  return x;
}

void gated(Activation activation, const float* gate, const float* up, int columns, float* y) {
  for (int c = 0; c < columns; ++c) {
    y[c] = static_cast<float>(activate(activation, double(gate[c])) * double(up[c]));
  }
}

}  // namespace ridge::reference
