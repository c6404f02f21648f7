#include "engine/runner/profile.h"

#include <string_view>

namespace ridge {

void Profile::add(const char* name, Clock::time_point start, Clock::time_point end) {
  const double seconds = std::chrono::duration<double>(end - start).count();
  if (keep_events_) {
    if (events_.size() < kMaxEvents) {
      events_.push_back({name, start, end});
    } else {
      ++dropped_events_;
    }
  }
  add(name, seconds, 1);
}

void Profile::add(const char* name, double seconds, long calls) {
  for (Entry& entry : entries_) {
    if (entry.name == name || std::string_view(entry.name) == name) {
      entry.seconds += seconds;
      entry.calls += calls;
      return;
    }
  }
  entries_.push_back({name, seconds, calls});
}

}  // namespace ridge
