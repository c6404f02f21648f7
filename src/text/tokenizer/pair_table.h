// A hash table from pairs of ids to an id and a rank: what a merge makes and how early it is made.
// Open addressing at half load: a look-up is one cache line, which decides how fast words merge.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace ridge {

class PairTable {
 public:
  struct Entry {
    uint64_t key = ~uint64_t{0};
    uint32_t rank = 0;
    int32_t id = -1;
  };

  explicit PairTable(size_t count) : entries_(std::bit_ceil(2 * count + 2)) {}

  // The last of equal pairs stays. At most `count` different pairs.
  void set(uint32_t first, uint32_t second, uint32_t rank, int32_t id) {
    const uint64_t key = key_of(first, second);
    Entry& entry = entries_[slot(key)];
    entry = {key, rank, id};
  }
  const Entry* find(uint32_t first, uint32_t second) const {
    const uint64_t key = key_of(first, second);
    const Entry& entry = entries_[slot(key)];
    return entry.key == key ? &entry : nullptr;
  }

 private:
  static uint64_t key_of(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }
  size_t slot(uint64_t key) const {
    // The product's upper bits depend on all of the key: neighbouring ids fall far apart.
    const size_t mask = entries_.size() - 1;
    auto at = static_cast<size_t>((key * 0x9E3779B97F4A7C15) >> (64 - std::countr_zero(mask + 1)));
    while (entries_[at].key != key && entries_[at].key != ~uint64_t{0}) at = (at + 1) & mask;
    return at;
  }
  std::vector<Entry> entries_;
};

}  // namespace ridge
