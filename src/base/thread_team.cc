#include "base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <cassert>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include "base/affinity.h"
#include "base/cpu_pause.h"

namespace ridge {
namespace {

// Two operators of a token are microseconds apart; two tokens are apart by sampling and printing.
// Waking a thread takes about as long as this spin, so that spinning first costs at most twice the
// better choice.
constexpr std::chrono::microseconds kSpin{60};
constexpr int kPausesPerClockRead = 32;  // a pause takes 40 to 140 clocks

// Returns whether `done` became true during the spin.
template <typename Done>
bool spin_until(Done done) {
  for (int i = 0; i < 4 * kPausesPerClockRead; ++i) {  // the usual case needs no clock
    if (done()) return true;
    cpu_pause();
  }
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (done()) return true;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

void SpinBarrier::wait() {
  constexpr int kSpins = 20'000;  // some 100 us: longer than any barrier of undisturbed threads
  const int generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins) {
    cpu_pause();
    if (spins >= kSpins) sched_yield();
  }
}

// run() publishes `call` and `context`, then increments `generation`; each thread calls, then
// decrements `pending`; run() returns when `pending` is zero. A thread that has slept is woken by
// run(), which looks at `sleeping` after the increment.
struct ThreadTeam::State {
  explicit State(int count) : size(count), barrier(count) { CPU_ZERO(&worker_processors); }

  // The words that run() writes and those that the threads write lie in different cache lines.
  alignas(64) std::atomic<uint32_t> generation = 0;
  std::atomic<int> sleeping = 0;
  Call call = nullptr;
  void* context = nullptr;
  bool stop = false;
  alignas(64) std::atomic<int> pending = 0;
  const int size;
  SpinBarrier barrier;
  bool pinned = false;
  std::vector<std::thread> threads;
  int caller_processor = -1;  // of a caller that is not pinned; -1: leave the caller alone
  cpu_set_t worker_processors;
  std::optional<AffinityScope> caller_affinity;

  void start(const std::vector<int>& processors, bool pin) {
    pinned = pin;
    threads.reserve(static_cast<size_t>(size - 1));
    try {
      for (int i = 1; i < size; ++i) {
        std::thread& thread = threads.emplace_back([this, i] { loop(i); });
        if (!pin) continue;
        const int processor = processors[static_cast<size_t>(i)];
        if (!pin_thread(thread.native_handle(), processor)) pinned = false;
        CPU_SET(static_cast<size_t>(processor), &worker_processors);
      }
    } catch (...) {
      join();
      throw;
    }
  }

  void join() {
    stop = true;
    begin();
    for (std::thread& thread : threads) thread.join();
  }

  // The scheduler may place the caller on the processor of a spinning thread, which halves the
  // speed of both. A moment of pinning moves it away.
  void leave_worker_processors() const {
    if (caller_processor < 0) return;
    const int at = sched_getcpu();
    if (at < 0 || !CPU_ISSET(static_cast<size_t>(at), &worker_processors)) return;
    const AffinityScope restore;
    if (restore.can_restore()) pin_thread(pthread_self(), caller_processor);
  }

  void loop(int index) {
    for (uint32_t seen = 0;;) {
      const auto next = [&] { return generation.load(std::memory_order_acquire) != seen; };
      if (!spin_until(next)) {
        // Counted before the last look at `generation`: either begin() sees the sleeper, or the
        // sleeper sees the new generation.
        sleeping.fetch_add(1);
        generation.wait(seen);
        sleeping.fetch_sub(1);
      }
      ++seen;  // the next generation begins only after all threads have ended this one
      if (stop) return;
      call(context, index);
      pending.fetch_sub(1, std::memory_order_release);
    }
  }

  void begin() {
    pending.store(static_cast<int>(threads.size()), std::memory_order_relaxed);
    generation.fetch_add(1);
    if (sleeping.load() > 0) generation.notify_all();
  }

  void finish() {
    const auto done = [&] { return pending.load(std::memory_order_acquire) == 0; };
    // Where threads outnumber processors, those that still work need this one.
    while (!spin_until(done)) std::this_thread::yield();
  }
};

ThreadTeam::ThreadTeam(int threads) {
  const std::vector<int> processors = one_per_core(usable_processors());
  const int count = threads > 0 ? threads : static_cast<int>(processors.size());
  const bool fits = count <= static_cast<int>(processors.size());
  state_ = std::make_unique<State>(count);
  if (fits && count > 1) state_->caller_processor = processors[0];
  state_->start(processors, fits);
}

ThreadTeam::ThreadTeam(std::unique_ptr<State> state) : state_(std::move(state)) {}

ThreadTeam ThreadTeam::pinned_to(const std::vector<int>& processors) {
  assert(!processors.empty());
  auto state = std::make_unique<State>(static_cast<int>(processors.size()));
  state->start(processors, true);
  state->caller_affinity.emplace();
  if (!pin_thread(pthread_self(), processors[0])) state->pinned = false;
  return ThreadTeam(std::move(state));
}

ThreadTeam::~ThreadTeam() { state_->join(); }

int ThreadTeam::size() const { return state_->size; }

bool ThreadTeam::pinned() const { return state_->pinned; }

void ThreadTeam::barrier() { state_->barrier.wait(); }

void ThreadTeam::run_raw(Call call, void* context) {
  State& state = *state_;
  if (state.size == 1) return call(context, 0);
  state.leave_worker_processors();
  state.call = call;
  state.context = context;
  state.begin();
  call(context, 0);
  state.finish();
}

}  // namespace ridge
