// How many requests a core simulates per second on one replica: Poisson arrivals, prompts of about
// 1000 tokens, outputs of about 200, a batch of about 100. The floor to hold is a million requests
// in 10 s; `of_floor` is the rate's ratio to it.
#include <benchmark/benchmark.h>

#include <random>

#include "serving/simulation.h"

namespace ridge {
namespace {

class LinearClock : public StepClock {
 public:
  double step(double decodes, double context, std::span<const PromptChunk> chunks) const override {
    double seconds = 8e-3 + 1e-5 * decodes + 4e-8 * context;
    for (const PromptChunk& chunk : chunks) seconds += 2e-5 * chunk.fresh;
    return seconds;
  }
  double linear_until(double, double context) const override { return context + 50000; }
  double first_token_overhead() const override { return 0; }
};

// Each prompt has ids for all of its blocks; `shared` of them are one of 50 beginnings.
std::vector<SimulatedRequest> poisson_requests(int count, double shared) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> gap(22);
  std::vector<SimulatedRequest> requests(static_cast<size_t>(count));
  double time = 0;
  int64_t fresh = 1 << 20;
  for (SimulatedRequest& each : requests) {
    each.arrival_s = time += gap(random);
    each.prompt = 500 + int(random() % 1001);
    each.output = 100 + int(random() % 201);
    const int blocks = each.prompt / 16, common = int(blocks * shared);
    const auto beginning = int64_t(random() % 50) * 1000;
    for (int i = 0; i < blocks; ++i) {
      each.blocks.push_back(i < common ? beginning + i : fresh++);
    }
  }
  return requests;
}

void run_workload(benchmark::State& state, const char* stack, double shared) {
  const LinearClock clock;
  const std::vector<SimulatedRequest> requests = poisson_requests(100000, shared);
  double running = 0;
  for (auto _ : state) {
    running = simulate(clock, policy_of(stack), 20000, requests).summary.mean_running;
  }
  const double simulated = double(state.iterations()) * double(requests.size());
  state.SetItemsProcessed(int64_t(simulated));
  state.counters["batch"] = running;
  state.counters["of_floor"] = benchmark::Counter(simulated / 1e5, benchmark::Counter::kIsRate);
}

void simulate_distinct(benchmark::State& state) { run_workload(state, "vllm", 0); }
void simulate_shared(benchmark::State& state) { run_workload(state, "vllm", 0.3); }
void simulate_sglang(benchmark::State& state) { run_workload(state, "sglang", 0.3); }
void simulate_trtllm(benchmark::State& state) { run_workload(state, "trtllm", 0.3); }

BENCHMARK(simulate_distinct)->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_shared)->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_sglang)->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_trtllm)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ridge
