// Pinned threads that work in step, and the time a step takes when nobody disturbs it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ridge {

// A barrier that spins: what an engine's thread pool uses between operators. Yields once in a
// while, so that it ends on fewer processors than threads too.
class SpinBarrier {
 public:
  explicit SpinBarrier(int count) : count_(count) {}
  void wait();

 private:
  const int count_;
  std::atomic<int> waiting_ = 0;
  std::atomic<int> turn_ = 0;
};

struct Pass {
  double seconds = 0;      // first start to last end
  bool disturbed = false;  // the kernel took a processor away from one of the threads meanwhile
};

class Team {
 public:
  // One thread per processor, pinned where that is allowed; the caller's thread is the first, and
  // gets its affinity back at the end. Throws std::system_error when threads are refused.
  explicit Team(std::vector<int> processors);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(processors_.size()); }
  bool pinned() const { return pinned_; }

  // Runs work(index) on every thread at once.
  Pass run(const std::function<void(int)>& work);
  void barrier() { barrier_.wait(); }  // inside run(): all threads meet

 private:
  struct alignas(64) Slot {  // a cache line each
    double start = 0, end = 0;
    bool disturbed = false;
  };
  void one_pass(int index);
  void loop(int index);

  std::vector<int> processors_;
  std::vector<Slot> slots_;
  SpinBarrier barrier_;
  std::atomic<bool> pinned_ = true;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<bool> started_ = false, stop_ = false;
  std::vector<std::thread> threads_;
  std::vector<unsigned long> old_affinity_;
};

struct Sampling {
  int samples = 7;        // undisturbed ones wanted
  double seconds = 0.02;  // each, at least
  double limit = 0.7;     // for all tries together
};

// Seconds per repeat of work(index, repeats): repeats are chosen so that a pass takes
// sampling.seconds, one warm-up pass goes unused, disturbed passes are taken again. When too few
// are left undisturbed, all are used and `doubt` says so.
struct Samples {
  std::vector<double> seconds;
  std::string doubt;
};
Samples sample(Team& team, const Sampling& sampling,
               const std::function<void(int index, long repeats)>& work);

}  // namespace ridge
