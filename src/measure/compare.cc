#include "measure/compare.h"

#include <algorithm>

namespace ridge {
namespace {

const Reading* partner(const Reading& reading, const std::vector<Reading>& others) {
  for (const Reading& other : others) {
    if (other.id == reading.id) return &other;
  }
  for (const Reading& other : others) {
    if (!other.path.empty() && other.path == reading.path) return &other;
  }
  return nullptr;
}

}  // namespace

std::vector<Drift> compare(const std::vector<Reading>& before, const std::vector<Reading>& after,
                           double tolerance) {
  std::vector<Drift> drifts;
  for (const Reading& now : after) {
    const Reading* then = partner(now, before);
    if (!then || then->quantity != now.quantity || then->value <= 0 || now.value <= 0) continue;
    Drift drift{now.id, now.quantity, then->value, now.value, 0, false};
    drift.change =
        now.quantity == Dimension::time ? then->value / now.value - 1 : now.value / then->value - 1;
    const bool ceiling = now.quantity != Dimension::size && now.quantity != Dimension::clock;
    const bool sure = then->doubt.empty() && now.doubt.empty();
    drift.fell = ceiling && sure && drift.change < -tolerance;
    drifts.push_back(drift);
  }
  std::stable_sort(drifts.begin(), drifts.end(),
                   [](const Drift& a, const Drift& b) { return a.change < b.change; });
  return drifts;
}

}  // namespace ridge
