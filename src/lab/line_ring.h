// Chains of loads through memory in random order: each load waits for the one before it, and N
// chains keep N loads in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "lab/line_order.h"

namespace ridge {

inline constexpr size_t kLineBytes = 64;

// One ring through all lines of a thread's part; chains start at equal distances along it.
class LineRing {
 public:
  LineRing(std::byte* memory, size_t bytes, uint64_t seed)
      : memory_(memory), order_(shuffled_lines(bytes / kLineBytes, seed)) {
    for (size_t i = 0; i < order_.size(); ++i) {
      *static_cast<void**>(line(order_[i])) = line(order_[(i + 1) % order_.size()]);
    }
  }
  void* start(size_t chain, size_t chains) const {
    return line(order_[order_.size() / chains * chain]);
  }

 private:
  void* line(size_t index) const { return memory_ + index * kLineBytes; }
  std::byte* memory_;
  std::vector<uint32_t> order_;
};

// `steps` loads of each of 1, 2, 4, 8, 16, 24 or 32 chains, going on where the last call stopped.
void chase_chains(size_t chains, void** at, long steps);

// Seconds of a load that waits for the one before it, on the calling thread alone. The 25th
// percentile of passes: other processes only ever add time.
double load_latency(const LineRing& ring);

// Lines a second that all threads of a team get from memory when each core has as many misses in
// flight as it can: 24 chains, more than the line fill buffers of any core that is sold. `memory`
// holds `part` bytes for each thread, which are overwritten.
struct MissRates {
  double lines = 0;    // a second
  double latency = 0;  // s, of one load at a time
};
MissRates miss_rates(ThreadTeam& team, std::byte* memory, size_t part);

}  // namespace ridge
