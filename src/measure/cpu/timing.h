// How long a team of threads takes for some work when nothing disturbs it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_team.h"

namespace ridge {

struct Pass {
  double seconds = 0;      // from the first thread's start to the last thread's end
  bool disturbed = false;  // the kernel preempted one of the threads meanwhile
};

// Runs work(index) once on every thread. All threads start together, after a barrier.
Pass timed_pass(ThreadTeam& team, const std::function<void(int index)>& work);

struct Sampling {
  int samples = 7;        // undisturbed passes wanted
  double seconds = 0.02;  // of each pass, at least
  double limit = 0.7;     // seconds for all passes together
};

// Seconds per repeat of work(index, repeats). `repeats` is chosen so that a pass takes
// sampling.seconds; the first passes warm up and do not count; disturbed passes are repeated. When
// too few passes stay undisturbed, the faster half of all is used and `doubt` says so.
struct Samples {
  std::vector<double> seconds;
  std::string doubt;
};
Samples sample(ThreadTeam& team, const Sampling& sampling,
               const std::function<void(int index, long repeats)>& work);

}  // namespace ridge
