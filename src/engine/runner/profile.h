// Time by operator, under the names that lower() gives its Ops. Memory is bounded: an entry for
// each name, and at most kMaxEvents events, the first ones. Later events are counted, not kept.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace ridge {

class Profile {
 public:
  struct Entry {
    const char* name;  // a static string of lower()'s
    double seconds = 0;
    long calls = 0;
  };
  using Clock = std::chrono::steady_clock;
  struct Event {
    const char* name;
    Clock::time_point start, end;
  };

  static constexpr size_t kMaxEvents = 1 << 18;  // of 24 bytes: 6 MB

  explicit Profile(bool keep_events = false) : keep_events_(keep_events) {}
  void add(const char* name, Clock::time_point start, Clock::time_point end);
  void add(const char* name, double seconds, long calls);                   // without events
  void clear() { entries_.clear(), events_.clear(), dropped_events_ = 0; }  // keeps the memory
  // In the order of their first call.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Event>& events() const { return events_; }
  long dropped_events() const { return dropped_events_; }

 private:
  bool keep_events_;
  std::vector<Entry> entries_;
  std::vector<Event> events_;
  long dropped_events_ = 0;
};

// Marks the operators of a step: each lasts until the next begins.
class OperatorClock {
 public:
  explicit OperatorClock(Profile* profile) : profile_(profile) {}
  ~OperatorClock() { begin(nullptr); }
  OperatorClock(const OperatorClock&) = delete;
  OperatorClock& operator=(const OperatorClock&) = delete;

  void begin(const char* name) {
    if (profile_ == nullptr) return;
    const Profile::Clock::time_point now = Profile::Clock::now();
    if (name_ != nullptr) profile_->add(name_, start_, now);
    name_ = name;
    start_ = now;
  }

 private:
  Profile* profile_;
  const char* name_ = nullptr;
  Profile::Clock::time_point start_{};
};

}  // namespace ridge
