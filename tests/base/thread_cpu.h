// The processor time of this thread: what a test compares where other processes share the machine.
#pragma once

#include <time.h>

namespace ridge {

inline double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

}  // namespace ridge
