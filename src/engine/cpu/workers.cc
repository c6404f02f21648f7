#include "engine/cpu/workers.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/place.h"

namespace ridge::cpu {
namespace {

// Between two operators of a token lie microseconds; between two tokens, sampling and printing.
// Waking a thread from its sleep takes about as long as this spin, so it never costs more than
// twice the better choice.
constexpr std::chrono::microseconds kSpin{60};
constexpr int kPausesPerLook = 32;  // at the clock; a pause is 40 to 140 clocks

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True when `done` came within the spin.
template <typename Done>
bool spin_until(Done done) {
  for (int i = 0; i < 4 * kPausesPerLook; ++i) {  // usually near: no look at the clock
    if (done()) return true;
    pause();
  }
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // refused: then it floats
}

}  // namespace

struct Workers::State {
  // What the workers read and what they write lie in lines of their own.
  alignas(64) std::atomic<uint32_t> turn = 0;  // counts the runs
  std::atomic<int> sleeping = 0;
  void (*call)(void*, int) = nullptr;
  void* context = nullptr;
  bool stop = false;
  alignas(64) std::atomic<int> pending = 0;
  std::vector<std::thread> threads;
  cpu_set_t taken;  // processors the workers are pinned to
  int home = -1;    // the caller's; negative: nobody is pinned

  // The caller is not pinned: threads it starts would inherit that. But the scheduler likes to put
  // it beside a spinning worker and then halves both, so it is sent home when found there.
  void part_from_workers() {
    if (home < 0) return;
    const int at = sched_getcpu();
    if (at < 0 || !CPU_ISSET(static_cast<size_t>(at), &taken)) return;
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(home), &one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    if (sched_setaffinity(0, sizeof one, &one) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
  }

  void loop(int index, int processor) {
    if (processor >= 0) pin(processor);
    for (uint32_t seen = 0;;) {
      const auto next = [&] { return turn.load(std::memory_order_acquire) != seen; };
      if (!spin_until(next)) {
        // Counted before the last look at `turn`: begin() either sees the sleeper or is seen.
        sleeping.fetch_add(1);
        turn.wait(seen);
        sleeping.fetch_sub(1);
      }
      ++seen;  // the caller starts no turn before all have ended the last one
      if (stop) return;
      call(context, index);
      pending.fetch_sub(1, std::memory_order_release);
    }
  }

  void begin() {
    pending.store(static_cast<int>(threads.size()), std::memory_order_relaxed);
    turn.fetch_add(1);
    if (sleeping.load() > 0) turn.notify_all();
  }

  void finish() {
    const auto done = [&] { return pending.load(std::memory_order_acquire) == 0; };
    // More threads than processors: give way to those that still work.
    while (!spin_until(done)) std::this_thread::yield();
  }
};

Workers::Workers(int threads) : state_(std::make_unique<State>()) {
  const std::vector<int> processors = one_per_core(usable_processors());
  const int count = std::max(1, threads > 0 ? threads : static_cast<int>(processors.size()));
  const bool fits = count <= static_cast<int>(processors.size());
  CPU_ZERO(&state_->taken);
  if (fits && count > 1) {
    state_->home = processors[0];
    for (int i = 1; i < count; ++i) {
      CPU_SET(static_cast<size_t>(processors[static_cast<size_t>(i)]), &state_->taken);
    }
  }
  for (int i = 1; i < count; ++i) {
    const int processor = fits ? processors[static_cast<size_t>(i)] : -1;
    state_->threads.emplace_back([this, i, processor] { state_->loop(i, processor); });
  }
}

Workers::~Workers() {
  state_->stop = true;
  state_->begin();
  for (std::thread& thread : state_->threads) thread.join();
}

int Workers::size() const { return static_cast<int>(state_->threads.size()) + 1; }

void Workers::run_raw(void (*call)(void* context, int index), void* context) {
  State& state = *state_;
  if (!state.threads.empty()) {
    state.part_from_workers();
    state.call = call;
    state.context = context;
    state.begin();
  }
  call(context, 0);
  if (!state.threads.empty()) state.finish();
}

}  // namespace ridge::cpu
