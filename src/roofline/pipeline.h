// A tile's way from device memory through the cache and shared memory into the matrix units, on
// one compute unit of a machine: what buffering buys, and where a tile spends its life.
//
// Little's law decides: to keep memory busy, bandwidth x latency bytes must be in flight. With one
// buffer a unit waits for every tile; with enough of them transfers hide behind arithmetic, or
// arithmetic behind transfers.
#pragma once

#include <string>
#include <vector>

#include "machine/machine.h"

namespace ridge {

struct TileShape {
  double m = 128, n = 128, k = 64;  // output tile and depth of one step
  DType dtype = DType::fp16;
  int stages = 4;    // buffers of (m + n) x k elements in shared memory
  int steps = 16;    // steps along K that make one output tile
  double reuse = 0;  // share of loads that hit the cache, because another unit read them

  double stage_bytes() const { return (m + n) * k * dtype_bits(dtype) / 8; }
  double flops() const { return 2 * m * n * k; }
};

// When one step's tile pair was where, seconds from the start.
struct TileLife {
  double issued = 0;     // the load is issued: a buffer is free
  double started = 0;    // device memory begins to serve it: before that, it queues
  double from_hbm = 0;   // has left device memory (equal to started on a cache hit)
  double in_shared = 0;  // has arrived in shared memory
  double computing = 0;  // the matrix unit takes it
  double done = 0;       // the buffer is free again
};

struct PipelineResult {
  std::vector<TileLife> lives;  // one per step
  double seconds = 0;           // for all steps
  double compute_share = 0;     // of the time the matrix unit is busy, after filling
  double memory_share = 0;      // of the unit's share of device bandwidth that is used
  // Shares of a tile's mean life, summing to 1.
  double hbm = 0, cache = 0, waiting = 0, computing = 0;
  double shared_bytes = 0;  // what the buffers take
  double capacity = 0;      // of shared memory in one unit
  bool fits = true;
  // Mean bytes that travel through the latency of device memory at once, all units: the bandwidth
  // in use times the latency (Little's law).
  double in_flight = 0;
  double needed = 0;               // bandwidth x latency of device memory, all units
  std::vector<std::string> notes;  // what was unknown
};

// Throws Error where the machine lacks what this needs: units, peak, memory bandwidth and shared
// memory. Unknown latencies and cache bandwidth are left out and noted.
PipelineResult simulate_pipeline(const Machine& machine, const TileShape& shape);

}  // namespace ridge
