// What disturbs a measurement from outside: other guests, other processes, limits, clocks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure/cpu/timing.h"

namespace ridge {

// Counters of the kernel at one moment.
struct Disturbance {
  double steal = 0;      // clock ticks the hypervisor kept from us, all processors
  double busy = 0;       // ticks in which any process or the kernel ran
  double total = 0;      // all ticks
  double throttled = 0;  // times the control group's quota stopped us
  double load = 0;       // runnable processes, one-minute mean
  double own_s = 0;      // processor time of this process, seconds
};
Disturbance disturbance_now();
// Tests let disturbance_now() return other readings than this machine's; an empty function ends
// that.
void set_disturbances(std::function<Disturbance()> source);

// One line for each thing a reader must know about what happened between two moments.
std::vector<std::string> disturbances_between(const Disturbance& before, const Disturbance& after,
                                              int threads);

// The share of all processors' time between two moments that others took: other processes, and
// other guests of the host.
double taken_by_others(const Disturbance& before, const Disturbance& after);

// Throttling, other guests of the host and other processes, each above what a median forgives;
// empty: none was seen. Other processes count where they took a tenth of the processors.
std::string doubt_between(const Disturbance& before, const Disturbance& after);

// The clock with all threads of the team busy, Hz: a chain of dependent additions, one a clock on
// every core there is.
double chain_clock(ThreadTeam& team);

}  // namespace ridge
