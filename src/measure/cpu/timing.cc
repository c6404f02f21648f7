#include "measure/cpu/timing.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace ridge {
namespace {

constexpr double kShortestPass = 1e-3;  // a time slice of the scheduler

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How often the kernel has preempted this thread so far.
long preemptions() {
  rusage usage = {};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

struct alignas(64) ThreadPass {  // a cache line for each thread
  double start = 0, end = 0;
  bool disturbed = false;
};

}  // namespace

Pass timed_pass(ThreadTeam& team, const std::function<void(int)>& work) {
  std::vector<ThreadPass> passes(static_cast<size_t>(team.size()));
  team.run([&](int index) {
    ThreadPass& pass = passes[static_cast<size_t>(index)];
    const long before = preemptions();
    team.barrier();
    pass.start = now();
    work(index);
    pass.end = now();
    pass.disturbed = preemptions() != before;
  });
  double start = passes[0].start, end = passes[0].end;
  bool disturbed = false;
  for (const ThreadPass& pass : passes) {
    start = std::min(start, pass.start);
    end = std::max(end, pass.end);
    disturbed |= pass.disturbed;
  }
  return {end - start, disturbed};
}

Samples sample(ThreadTeam& team, const Sampling& sampling,
               const std::function<void(int, long)>& work) {
  const double begin = now();
  long repeats = 1;
  const std::function<void(int)> step = [&](int index) { work(index, repeats); };
  // Repeats grow until a pass is long enough to scale from. This also warms caches and clocks.
  double seconds = timed_pass(team, step).seconds;
  while (seconds < sampling.seconds / 4 && repeats < (1L << 40)) {
    const double wanted = sampling.seconds / std::max(seconds, 1e-9);
    repeats = std::max(repeats + 1, static_cast<long>(static_cast<double>(repeats) *
                                                      std::clamp(wanted, 2.0, 64.0)));
    seconds = timed_pass(team, step).seconds;
  }
  const double scale = sampling.seconds / seconds;
  if (scale > 1) repeats = static_cast<long>(std::ceil(static_cast<double>(repeats) * scale));

  std::vector<double> clean, all;
  while (static_cast<int>(clean.size()) < sampling.samples) {
    const Pass pass = timed_pass(team, step);
    const double each = pass.seconds / static_cast<double>(repeats);
    all.push_back(each);
    if (!pass.disturbed) {
      clean.push_back(each);
    } else if (clean.empty() && pass.seconds > kShortestPass) {
      repeats = std::max(1L, repeats / 2);  // a shorter pass may fall between two preemptions
    }
    if (now() - begin > sampling.limit && all.size() >= 3) break;
  }
  Samples result;
  const int wanted = std::min(3, sampling.samples);
  if (static_cast<int>(clean.size()) >= wanted) {
    result.seconds = std::move(clean);
    return result;
  }
  result.doubt =
      fmt::format("noisy: {} of {} passes were preempted", all.size() - clean.size(), all.size());
  // Disturbances only slow a pass: the faster half is nearer to what the machine can do.
  std::sort(all.begin(), all.end());
  all.resize((all.size() + 1) / 2);
  result.seconds = std::move(all);
  return result;
}

}  // namespace ridge
