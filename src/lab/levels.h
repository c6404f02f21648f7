// What each memory level of this CPU can do, taken with the read and chase kernels of
// `ridge measure` before any experiment runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "machine/machine.h"

namespace ridge {

// A team smaller than the machine has its share of the peaks.
System with_share_of_peak(System system, int threads);

// The system with the read bandwidth and latency of every level of the CPU and its fp32 peak. A
// figure of the machine (a file of `ridge measure`) stands unless the kernels are faster here. A
// level whose size is unknown stays as it is. `between` is called between two levels and may throw.
System with_probed_levels(
    System system, ThreadTeam& team, bool quick, const std::function<void()>& between = [] {});
// Bytes that probing holds at most, on a machine with any cache.
inline constexpr double kMostProbed = 512e6 + 128e6;  // what is read, and the ring of the latency

// What loops over arrays in memory reach, bytes/s as STREAM counts. A core waits for its reads and
// not for its writes, so an array that is updated in place moves faster than one that is only read.
struct StoreRates {
  double update = 0;  // x = f(x)
  double copy = 0;    // y = f(x)
  double triad = 0;   // z = f(x, y)
};
StoreRates probe_stores(const Machine& machine, ThreadTeam& team, bool quick);

// A level that experiments run in: floats for each thread that lie in it and in no smaller level.
struct LabLevel {
  std::string name;
  double bandwidth = 0;  // bytes/s, all threads of the team
  double latency = 0;    // s; 0: unknown
  double part_bytes = 0;
};
std::vector<LabLevel> lab_levels(const Machine& machine, int threads);

}  // namespace ridge
