// The kernels of a profile beside the operators that Ridge expects: which family takes more than
// its share.
#pragma once

#include <vector>

#include "diagnose/kernel_profile.h"
#include "diagnose/reconstruct.h"

namespace ridge {

struct OperatorTime {
  KernelFamily family = KernelFamily::other;
  double seconds = 0;   // in the profile
  double launches = 0;  // in the profile
  // Of a run with the same number of steps; 0: no such operator.
  double expected_s = 0;
  double flops = 0, bytes = 0;
};

// Families by time, longest first. Expected times need `expected` and steps that the profile marks,
// or whose number its attention kernels give; else they are 0.
std::vector<OperatorTime> operator_times(const KernelProfile& profile, const Expected* expected);

// Steps in the profile: as marked, or attention launches over layers. 0: not known.
double profile_steps(const KernelProfile& profile, const Expected* expected);

}  // namespace ridge
