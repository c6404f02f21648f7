// What each memory level of this CPU can do, taken with the read and chase kernels of
// `ridge measure` before and after every experiment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "machine/machine.h"

namespace ridge {

// A team smaller than the machine has its share of the peaks.
System with_share_of_peak(System system, int threads);

// What loops over arrays in memory reach, bytes/s as STREAM counts. A core waits for its reads and
// not for its writes, so an array that is updated in place moves faster than one that is only read.
struct StoreRates {
  double update = 0;  // x = f(x)
  double copy = 0;    // y = f(x)
  double triad = 0;   // z = f(x, y)
};

// What memory and cores do at one moment. Other guests of the host use the same memory, caches and
// power, so the lab reads these rates before and after every experiment.
struct LabRates {
  std::vector<double> read;  // bytes/s, by level of the machine; 0: its size is unknown
  double fp32 = 0;           // FLOP/s of all threads together
  double barrier = 0;        // s, of all threads inside a parallel region
  double region = 0;         // s, of a parallel region that does nothing
  StoreRates stores;
};
// The best of a few short passes each: other processes only ever add time. A level whose size is
// unknown is left out. `between` is called between two readings and may throw.
LabRates read_rates(
    const Machine& machine, ThreadTeam& team, bool quick,
    const std::function<void()>& between = [] {});
// Bytes that reading holds at most, on a machine with any cache.
inline constexpr double kMostProbed = 520e6;

// The system with these rates instead of those it had.
System with_rates(System system, const LabRates& rates);

// Which rate changed so much between two readings that predictions from the first say nothing about
// what ran in between; empty: none. Without `memory` only the cores count.
std::string drift_between(const Machine& machine, const LabRates& before, const LabRates& after,
                          bool memory = true);

// A level that experiments run in: floats for each thread that lie in it and in no smaller level.
struct LabLevel {
  std::string name;
  double bandwidth = 0;  // bytes/s, all threads of the team
  double part_bytes = 0;
};
std::vector<LabLevel> lab_levels(const Machine& machine, int threads);

}  // namespace ridge
