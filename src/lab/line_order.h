// Cache lines in an order that no prefetcher guesses.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.h"

namespace ridge {

// Every number below `count` once, shuffled (Fisher-Yates); the same on every machine.
inline std::vector<uint32_t> shuffled_lines(size_t count, uint64_t seed) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  SplitMix64 random(seed);
  for (size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[size_t(unit_interval(random.next()) * double(i))]);
  }
  return order;
}

}  // namespace ridge
