// A hash that whoever writes a file cannot foresee, so that no file can put all of its names into
// one bucket of a table.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string_view>

namespace ridge {

// Another one in each process. Texts that std::hash takes for equal stay so.
inline uint64_t seeded_hash(std::string_view text) {
  static const uint64_t seed = [] {
    std::random_device random;
    return uint64_t(random()) << 32 | random();
  }();
  uint64_t hash = (std::hash<std::string_view>()(text) ^ seed) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

}  // namespace ridge
