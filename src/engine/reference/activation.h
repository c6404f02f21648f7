// Activations of gated MLPs by their definition, in double.
#pragma once

#include "model/architecture.h"

namespace ridge::reference {

double silu(double x);                             // x / (1 + exp(-x))
double gelu_tanh(double x);                        // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
double activate(Activation activation, double x);  // silu, gelu_tanh
// activate(gate) up, or the clamped form.
double gate_times_up(Activation activation, double gate, double up);

// y = activation(gate) * up
void gated(Activation activation, const float* gate, const float* up, int columns, float* y);

}  // namespace ridge::reference
