// Loads of device memory: with a chosen number of bytes in flight, and in patterns of addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

// Each thread issues `loads` loads of 16 bytes (1, 2 or 4) and waits for them before it issues the
// next.
struct InFlight {
  int warps = 1;  // on each SM: up to 32, in one block, or 64, in two
  int loads = 1;

  double bytes() const { return 32.0 * warps * loads * 16; }  // of a SM
};

struct ReadPattern {
  enum Kind : uint8_t {
    strided,  // one word of each `stride` words, in order
    words,    // single words, each anywhere: a 32nd of them all
    lines,    // whole lines of 128 bytes, each anywhere
  };
  Kind kind = strided;
  int stride = 1;  // words
};

class LabReads {
 public:
  // A set of 2^`bits` words at random.
  LabReads(LabGpu& gpu, int bits);
  ~LabReads();

  // Queues `steps` rounds of loads of every thread, from where the last launch ended.
  void read_in_flight(const InFlight& shape, int steps);
  bool in_flight_is_right(const InFlight& shape, int steps);
  int most_steps(const InFlight& shape) const;  // within the set

  // Queues the reads of a pattern over the whole set.
  void read_pattern(const ReadPattern& pattern);
  double useful_bytes(const ReadPattern& pattern) const;
  bool pattern_is_right(const ReadPattern& pattern);

 private:
  struct Data;
  size_t vectors_of(const InFlight& shape, int steps) const;
  size_t place(const InFlight& shape, int steps);
  LabGpu& gpu_;
  size_t words_;
  size_t next_ = 0;  // vector
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
