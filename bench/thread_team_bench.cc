// What it costs to run a function on all threads, beside the barrier that no fork and join can
// beat: `of_barrier` is the share of a run that one barrier of the same threads takes.
#include <benchmark/benchmark.h>

#include <chrono>

#include "base/thread_team.h"

namespace ridge {
namespace {

double barrier_seconds(ThreadTeam& team) {
  constexpr int kBarriers = 20'000;
  const auto start = std::chrono::steady_clock::now();
  team.run([&](int) {
    for (int i = 0; i < kBarriers; ++i) team.barrier();
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         kBarriers;
}

void empty_run(benchmark::State& state) {
  ThreadTeam team;
  for (auto _ : state) team.run([](int) {});
  state.counters["of_barrier"] = benchmark::Counter(
      double(state.iterations()) * barrier_seconds(team), benchmark::Counter::kIsRate);
}
BENCHMARK(empty_run)->UseRealTime();

}  // namespace
}  // namespace ridge
