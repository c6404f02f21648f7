// The time of one load that waits for the load before it.
#pragma once

#include "base/mapped_buffer.h"
#include "measure/cpu/timing.h"
#include "measure/reading.h"

namespace ridge {

// A ring through every line of the first `bytes` of a buffer, in random order (Sattolo's
// algorithm), so that no prefetcher guesses the next one.
class Ring {
 public:
  Ring(const MappedBuffer& buffer, double bytes, uint64_t seed);
  // Loads 16 x `steps` nodes, going on where the last call stopped: until a lap is full, no line
  // is met twice.
  void chase(long steps);
  size_t nodes() const { return nodes_; }
  bool is_whole() const;  // one lap meets every node; for tests

 private:
  size_t nodes_;
  void** start_;
  void** at_;
};

// Seconds per load over a working set, by the first thread of a team of one.
Reading measure_latency(ThreadTeam& one, const MappedBuffer& buffer, double bytes,
                        const Sampling& sampling);

}  // namespace ridge
