// A model cut among cores: each reads its part of the weights, and two all-reduces per layer add up
// what they found.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/account/roof_system.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_ranks.h"
#include "lab/levels.h"

namespace ridge {
namespace {

constexpr int kParallelContext = 64;

// What each of the ranks has, one core of this machine, as fast as they read their weights side by
// side.
System system_of_ranks(Lab& lab, Runner& runner) {
  const RankPlacement placed = runner.place_ranks();
  double best = 0;
  constexpr int kPasses = 3;  // the first may find the caches cold
  for (int pass = 0; pass < kPasses; ++pass) best = std::max(best, runner.read_rate());
  const System cores = with_share_of_peak(lab.system(), placed.ranks);
  return with_read_rate(with_ranks(cores, runner.plan(), placed, placed.ranks), runner, best);
}

struct ParallelStep {
  LabPoint point;
  double rate = 0;  // of plain reads of the weights, by all ranks
  std::vector<Token> tokens;
};

ParallelStep parallel_step(Lab& lab, Runner& runner, int ranks) {
  LabPredictor predictor(lab, system_of_ranks(lab, runner), runner);
  LabStep step(runner, 1, kParallelContext);
  const LabBand band = band_of(predictor.step(step.sequences()));
  ParallelStep result;
  result.rate = ranks * predictor.bandwidth();
  result.point = lab.measure(
      ranks, scaled(band, 1e3), [&] { step(); }, [](double seconds) { return seconds * 1e3; });
  result.point.label = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  const std::vector<Token> prompt = some_tokens(8, runner.weights().architecture.vocab, 3);
  result.tokens = lab_continue(runner, prompt, lab.quick() ? 8 : 24);
  return result;
}

LabResult run_tensor_parallel(Lab& lab) {
  LabResult result;
  result.x = {"ranks, one core each", false, 0, 0};
  result.y = {"ms per token", false, 0, 0};
  const std::vector<int> counts = lab_rank_counts(lab);
  if (counts.empty()) {
    result.sentence = "Two ranks need two cores, and this process may use one.";
    return result;
  }
  const LabShape shape = lab_large_shape(lab);
  const RunnerOptions bounds{.threads = 1, .cache_tokens = 256, .max_tokens = 16};
  LabSeries series{"step of one sequence", {}};
  ParallelStep one;
  {
    lab.step("one core");
    const auto runner = make_cpu_runner(lab_weights(lab, shape, Storage::q8_0), bounds);
    one = parallel_step(lab, *runner, 1);
  }
  series.points.push_back(one.point);
  bool faster = true;
  double gain = 0, read_gain = 0;
  for (const int ranks : counts) {
    lab.step(fmt::format("{} ranks", ranks));
    LabRankedModel model(lab_weights(lab, shape, Storage::q8_0), ranks, bounds);
    const ParallelStep cut = parallel_step(lab, model.runner(), ranks);
    result.checks.push_back(
        {fmt::format("{} ranks make the greedy tokens of one", ranks), cut.tokens == one.tokens});
    series.points.push_back(cut.point);
    gain = one.point.measured / cut.point.measured;
    read_gain = cut.rate / one.rate;
    // Less than the cores' reads gain, because of what is exchanged.
    faster = faster && gain > 1.1 && gain < 1.15 * ranks;
  }
  result.series.push_back(std::move(series));
  if (read_gain > 1.2) decide(result, faster, points_of(result.series.back()));
  result.sentence = fmt::format(
      "{} ranks, one core each, make a token {:.2g} times as fast as one core; they read weights "
      "{:.2g} times as fast.",
      counts.back(), gain, read_gain);
  if (read_gain <= 1.2) {
    result.sentence += " One core takes most of this machine's bandwidth, so nothing is gained.";
  }
  return result;
}

}  // namespace

const Experiment kTensorParallelExperiment{
    "tensor-parallel",
    LabTopic::serving,
    "What does splitting a model over devices gain?",
    "Each of n devices reads 1/n of the weights per token, and two all-reduces per layer take part "
    "of the gain.",
    "tensor parallelism",
    "ridge predict -m llama-3-70b -M 8xh100-sxm -b 1,32",
    run_tensor_parallel,
    nullptr,
    8,
    {60e6, 450e6, 0, 0},
    "Needs two GPUs: ranks that share one read the same memory, so cutting the model gains "
    "nothing."};

}  // namespace ridge
