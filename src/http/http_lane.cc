#include "http/http_lane.h"

#include <sys/resource.h>
#include <unistd.h>

namespace ridge {

HttpLaneThreads::HttpLaneThreads(const HttpLane& lane)
    : most_waiting_(lane.waiting), open_(tasks_.get_executor()) {
  for (size_t i = 0; i < lane.threads; ++i) {
    threads_.emplace_back([this, niceness = lane.niceness] {
      // Of this thread alone, in Linux. Without it the lane is no less right.
      if (niceness > 0) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness);
      tasks_.run();
    });
  }
}

HttpLaneThreads::~HttpLaneThreads() {
  tasks_.stop();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace ridge
