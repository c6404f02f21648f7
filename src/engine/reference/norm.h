// RMSNorm by its definition (Zhang and Sennrich 2019), in double.
#pragma once

namespace ridge::reference {

// y = x / sqrt(mean(x^2) + eps) * w; y may alias x.
void rms_norm(const float* x, int columns, const float* w, float eps, float* y);

}  // namespace ridge::reference
