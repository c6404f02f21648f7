// Holds or slows the steps of serving engines, for tests: what a test sees between two steps is
// then the same on every machine. An engine without a pace does not look at any of this.
//
// One pace may be shared by several engines (the replicas of a group): the steps that are allowed
// are then those of all engines together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace ridge {

class StepPace {
 public:
  // Any thread. Each is in force when it returns: at most a step that is being launched just then
  // is launched against it.
  void hold();              // no step is launched; those in flight still land
  void go();                // every step is launched at once, and takes no longer than it must
  void allow(int steps);    // adds to the steps that may still be launched; then none
  void at_least(double s);  // seconds of a step, from its launch; 0: what it takes. Keeps a hold.

  // What follows is for the engine's thread.
  // A step that may be launched; it counts as launched unless it is given back.
  struct Permit {
    uint64_t limits;  // how often the steps had been limited before it
  };
  std::optional<Permit> take();  // none while the pace holds
  void give_back(Permit permit);
  bool holds() const { return left_.load() == 0; }
  double least_s() const { return least_s_.load(); }

  // Calls `changed` after each change of the pace, while it lives. holds() and least_s() may be
  // called from `changed`, nothing else of the pace.
  class Watch {
   public:
    Watch(StepPace& pace, std::function<void()> changed);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    StepPace* pace_;
    uint64_t key_;
  };

 private:
  static constexpr int64_t kNoLimit = -1;

  void set_left(int64_t left);  // with the mutex held

  std::mutex mutex_;                      // of all changes; the atomics are read without it
  std::atomic<int64_t> left_ = kNoLimit;  // steps that may be launched
  std::atomic<double> least_s_ = 0;
  uint64_t limits_ = 0, last_key_ = 0;
  std::map<uint64_t, std::function<void()>> watches_;
};

}  // namespace ridge
