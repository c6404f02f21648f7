#include "measure/cpu/team.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace ridge {
namespace {

constexpr double kShortestPass = 1e-3;  // a scheduler's slice; below it the barriers would show

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Times the kernel took the processor from this thread although it wanted to go on.
long preemptions() {
  rusage usage = {};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

bool pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (processor < 0 || processor >= CPU_SETSIZE) return false;
  CPU_SET(processor, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void SpinBarrier::wait() {
  constexpr int kSpins = 20'000;  // some 100 us: longer than any barrier of undisturbed threads
  const int turn = turn_.load(std::memory_order_acquire);
  if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    waiting_.store(0, std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; ++spins) {
    relax();
    if (spins >= kSpins) sched_yield();
  }
}

Team::Team(std::vector<int> processors)
    : processors_(std::move(processors)),
      slots_(processors_.size()),
      barrier_(static_cast<int>(processors_.size())) {
  cpu_set_t old;
  CPU_ZERO(&old);
  if (pthread_getaffinity_np(pthread_self(), sizeof old, &old) == 0) {
    old_affinity_.resize(sizeof old / sizeof(unsigned long));
    std::memcpy(old_affinity_.data(), &old, sizeof old);
  }
  try {
    for (int i = 1; i < size(); ++i) threads_.emplace_back([this, i] { loop(i); });
  } catch (...) {  // no more threads allowed here: send home those that started
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
  started_ = true;
  if (!pin(processors_[0])) pinned_ = false;
}

Team::~Team() {
  stop_ = true;
  if (size() > 1) barrier_.wait();
  for (std::thread& thread : threads_) thread.join();
  if (!old_affinity_.empty()) {
    cpu_set_t old;
    std::memcpy(&old, old_affinity_.data(), sizeof old);
    pthread_setaffinity_np(pthread_self(), sizeof old, &old);
  }
}

void Team::loop(int index) {
  if (!pin(processors_[static_cast<size_t>(index)])) pinned_ = false;
  while (!started_) {
    if (stop_) return;
    sched_yield();
  }
  while (true) {
    barrier_.wait();
    if (stop_) return;
    one_pass(index);
    barrier_.wait();
  }
}

void Team::one_pass(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  const long before = preemptions();
  barrier_.wait();
  slot.start = now();
  (*work_)(index);
  slot.end = now();
  slot.disturbed = preemptions() != before;
}

Pass Team::run(const std::function<void(int)>& work) {
  work_ = &work;
  barrier_.wait();
  one_pass(0);
  barrier_.wait();
  Pass pass;
  double start = slots_[0].start, end = slots_[0].end;
  for (const Slot& slot : slots_) {
    start = std::min(start, slot.start);
    end = std::max(end, slot.end);
    pass.disturbed |= slot.disturbed;
  }
  pass.seconds = end - start;
  return pass;
}

Samples sample(Team& team, const Sampling& sampling, const std::function<void(int, long)>& work) {
  const double begin = now();
  long repeats = 1;
  const std::function<void(int)> step = [&](int index) { work(index, repeats); };
  // Grow until a pass is long enough to scale from; this also warms caches and clocks up.
  double seconds = team.run(step).seconds;
  while (seconds < sampling.seconds / 4 && repeats < (1L << 40)) {
    const double wanted = sampling.seconds / std::max(seconds, 1e-9);
    repeats = std::max(repeats + 1, static_cast<long>(static_cast<double>(repeats) *
                                                      std::clamp(wanted, 2.0, 64.0)));
    seconds = team.run(step).seconds;
  }
  const double scale = sampling.seconds / seconds;
  if (scale > 1) repeats = static_cast<long>(std::ceil(static_cast<double>(repeats) * scale));

  std::vector<double> clean, all;
  while (static_cast<int>(clean.size()) < sampling.samples) {
    const Pass pass = team.run(step);
    const double each = pass.seconds / static_cast<double>(repeats);
    all.push_back(each);
    if (!pass.disturbed) {
      clean.push_back(each);
    } else if (clean.empty() && pass.seconds > kShortestPass) {
      repeats = std::max(1L, repeats / 2);  // a shorter pass may slip between two disturbances
    }
    if (now() - begin > sampling.limit && all.size() >= 3) break;
  }
  Samples result;
  const int wanted = std::min(3, sampling.samples);
  if (static_cast<int>(clean.size()) >= wanted) {
    result.seconds = std::move(clean);
    return result;
  }
  result.doubt = fmt::format("noisy: {} of {} passes lost a processor to others",
                             all.size() - clean.size(), all.size());
  // The least disturbed half is nearer to the machine than the middle of all.
  std::sort(all.begin(), all.end());
  all.resize((all.size() + 1) / 2);
  result.seconds = std::move(all);
  return result;
}

}  // namespace ridge
