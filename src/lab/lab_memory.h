// Memory that experiments announce before they run, what is free for them, and what they held.
#pragma once

#include <string>

#include "lab/lab.h"

namespace ridge {

// The experiment's own bytes on a device, without the ceilings' probe; on the CPU with one thread
// on each processor.
double own_bytes(const Experiment& experiment, LabDevice device, bool quick);

// What a run of it holds at most: its own bytes, or those of the probe of the ceilings, which ends
// before an experiment begins. On CUDA the bytes are the device's and nothing is probed.
double announced_bytes(const Experiment& experiment, LabDevice device, bool quick);

// Why the experiment must not start with what is free now; empty: it may.
std::string why_no_room(const Lab& lab, const Experiment& experiment);

// The growth of this process's resident memory since construction, at its peak.
class PeakMemory {
 public:
  PeakMemory();
  double growth() const;  // bytes; 0 where the kernel does not tell

 private:
  double before_ = 0;
};

}  // namespace ridge
