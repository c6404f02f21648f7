// Which processors threads run on.
#pragma once

#include <sched.h>

#include <thread>
#include <vector>

namespace ridge {

// Logical processors in the affinity mask of this thread, not all that the machine has.
std::vector<int> usable_processors();

// One logical processor for each physical core: SMT siblings share execution ports and caches.
std::vector<int> one_per_core(const std::vector<int>& processors);

// Restricts a thread to one processor. False where the system refuses; the thread then floats.
bool pin_thread(std::thread::native_handle_type thread, int processor);

// Restores the affinity that the calling thread had at construction. Destroy it on that thread.
class AffinityScope {
 public:
  AffinityScope();
  ~AffinityScope();
  AffinityScope(const AffinityScope&) = delete;
  AffinityScope& operator=(const AffinityScope&) = delete;
  bool can_restore() const { return known_; }

 private:
  cpu_set_t saved_;
  bool known_;
};

}  // namespace ridge
