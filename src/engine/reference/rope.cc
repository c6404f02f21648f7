#include "engine/reference/rope.h"

#include <cmath>

namespace ridge::reference {

void turn(float* head, const Rope& rope, int position) {
  const size_t half = rope.frequency.size();
  for (size_t i = 0; i < half; ++i) {
    if (rope.frequency[i] == 0) continue;
    const double angle = double(position) * double(rope.frequency[i]);
    const double c = std::cos(angle) * double(rope.magnitude);
    const double s = std::sin(angle) * double(rope.magnitude);
    const double a = double(head[i]), b = double(head[half + i]);
    head[i] = static_cast<float>(a * c - b * s);
    head[half + i] = static_cast<float>(b * c + a * s);
  }
}

}  // namespace ridge::reference
