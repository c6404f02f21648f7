// A team of pinned threads that run the same function together: the CPU engine's threads and those
// of the measurements.
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>
#include <vector>

namespace ridge {

// A barrier for `count` threads that spins. After about 100 us it yields the processor between
// looks, so that it also ends where threads outnumber processors.
class SpinBarrier {
 public:
  explicit SpinBarrier(int count) : count_(count) {}
  void wait();

 private:
  const int count_;
  std::atomic<int> arrived_ = 0;
  std::atomic<int> generation_ = 0;
};

class ThreadTeam {
 public:
  // `threads` threads including the caller; 0 means one for each core that this process may use.
  // Threads are pinned one to a core where the cores suffice. The caller is not pinned, because
  // threads that it starts would inherit the affinity; run() only moves it off the others' cores.
  explicit ThreadTeam(int threads = 0);

  // One thread per listed processor, the caller on the first of them. All are pinned; destruction
  // restores the caller's affinity and must happen on the same thread.
  static ThreadTeam pinned_to(const std::vector<int>& processors);

  // Both throw std::system_error where the system refuses threads.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;
  bool pinned() const;  // false: there are too few cores, or the system refused

  // Calls work(index) on every thread, with index 0 on the caller, and returns when all calls have
  // returned. Costs about a microsecond and allocates nothing. Idle threads spin for a moment,
  // since the next operator of a model usually follows within microseconds, then sleep.
  // An exception that leaves `work` ends the program. One run at a time; runs do not nest.
  template <typename Work>
  void run(Work&& work) {
    using Callable = std::remove_reference_t<Work>;
    run_raw([](void* context, int index) noexcept { (*static_cast<Callable*>(context))(index); },
            const_cast<void*>(static_cast<const void*>(&work)));
  }

  // Inside run(), called by every thread: returns when all have called it.
  void barrier();

 private:
  struct State;
  using Call = void (*)(void* context, int index) noexcept;
  explicit ThreadTeam(std::unique_ptr<State> state);
  void run_raw(Call call, void* context);
  std::unique_ptr<State> state_;
};

}  // namespace ridge
