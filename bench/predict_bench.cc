// How many full decode steps a core predicts per second: lowering to operators, every operator
// timed on every ceiling, summed. The floor to hold is 1,000,000 a second for Llama-3-70B on TP8;
// `of_floor` is the share of it.
#include <benchmark/benchmark.h>

#include "machine/atlas.h"
#include "model/read.h"
#include "predict/predict.h"
#include "step/lower.h"

namespace ridge {
namespace {

void decode_steps(benchmark::State& state, const char* model_name, const char* system_name,
                  const char* stack = "typical") {
  const Model model = find_model(model_name);
  const System system = find_system(system_name);
  Plan plan;
  plan.tp = system.devices_per_node;
  const Rank rank = make_rank(model, plan);
  const Ceilings ceilings = make_ceilings(system, plan, find_stack(stack), &model);
  std::vector<Op> ops;
  double batch = 1, context = 128;
  for (auto _ : state) {
    const Sequences step{batch, 1, context, 1};
    lower(rank, {&step, 1}, ops);
    benchmark::DoNotOptimize(estimate_step(ops, ceilings, rank.math));
    batch = batch < 256 ? batch + 1 : 1;
    context = context < 8192 ? context + 32 : 128;
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["of_floor"] =
      benchmark::Counter(double(state.iterations()) / 1e6, benchmark::Counter::kIsRate);
}

void llama_70b(benchmark::State& state) { decode_steps(state, "llama-3-70b", "8xh100-sxm"); }
void deepseek_v3(benchmark::State& state) { decode_steps(state, "deepseek-v3", "8xh200"); }
// With fitted kernels the floor is 500,000.
void llama_70b_calibrated(benchmark::State& state) {
  decode_steps(state, "llama-3-70b", "8xh100-sxm", "vllm");
}
BENCHMARK(llama_70b);
BENCHMARK(llama_70b_calibrated);
BENCHMARK(deepseek_v3);

// The whole answer, memory fit and prefill included.
void full_prediction(benchmark::State& state) {
  Request r;
  r.model = std::make_shared<const Model>(find_model("llama-3-70b"));
  r.system = find_system("8xh100-sxm");
  r.stack = find_stack("typical");
  r.plan.tp = 8;
  r.batch = 32;
  for (auto _ : state) benchmark::DoNotOptimize(predict(r));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(full_prediction);

}  // namespace
}  // namespace ridge
