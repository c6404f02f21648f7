// What inference holds: weights, keys and values, activations; counted and then read from the
// process.
#include "predict/memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/units.h"
#include "engine/account/roof_system.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

// Bytes of this process in memory; 0 where the system does not tell.
double resident_bytes() {
  double size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * double(sysconf(_SC_PAGESIZE));
}

LabPoint memory_point(double x, const char* label, double predicted, double measured) {
  LabPoint point;
  point.x = x;
  point.label = label;
  // Whole pages of up to 2 MB (huge pages), and what the allocator keeps.
  constexpr double kSlack = 4e6;
  point.band = {(0.95 * predicted - kSlack) / 1e6, predicted / 1e6,
                (1.05 * predicted + kSlack) / 1e6};
  point.band.low = std::max(point.band.low, 0.0);
  point.measured = measured / 1e6;
  return point;
}

LabResult run_memory(Lab& lab) {
  LabResult result;
  result.x = {"part", false, 0, 0};
  result.y = {"MB", true, 0, 0};
  result.timed = false;
  if (resident_bytes() == 0) {
    result.sentence = "This system does not tell how much memory a process holds.";
    return result;
  }
  const int context = lab.quick() ? 1024 : 16384, step_tokens = lab.quick() ? 64 : 512;
  const LabShape shape = lab_shape(lab);
  lab.step("weights");
  const double before = resident_bytes();
  Weights weights = lab_weights(lab, shape, Storage::bf16);
  const double with_weights = resident_bytes();
  lab.step("the runner");
  const auto runner =
      lab_runner(lab, std::move(weights), {.cache_tokens = context, .max_tokens = step_tokens});
  const double with_runner = resident_bytes();
  const Rank rank = make_rank(runner->weights().model, runner->plan());
  const MemoryFit fit = fit_memory(rank, {}, lab.system(), engine_stack(lab.system()).memory, 1,
                                   context, step_tokens);
  lab.step("keys and values");
  runner->fill_cache(1);
  const double with_kv = resident_bytes();
  lab.step("a step");
  LabStep step(*runner, 1, context - step_tokens, step_tokens);
  step();
  const double with_step = resident_bytes();

  LabSeries series{"held", {}};
  series.points.push_back(memory_point(0, "weights", fit.weights, with_weights - before));
  series.points.push_back(memory_point(1, "keys and values", fit.kv, with_kv - with_runner));
  series.points.push_back(
      memory_point(2, "activations", fit.activations,
                   with_step - with_kv + (with_runner - with_weights) - runner->repacked_bytes()));
  const double predicted = fit.weights + fit.kv + fit.activations + runner->repacked_bytes();
  series.points.push_back(memory_point(3, "together", predicted, with_step - before));
  const LabPoint& all = series.points.back();
  result.holds = all.error() < 0.15;
  result.sentence = fmt::format(
      "Predicted {} of weights, {} of keys and values for {} tokens and {} of activations for a "
      "step of {}: together {}; the process grew by {}.",
      pretty_bytes(fit.weights), pretty_bytes(fit.kv), context, pretty_bytes(fit.activations),
      step_tokens, pretty_bytes(predicted), pretty_bytes(with_step - before));
  if (runner->repacked_bytes() > 0) {
    result.notes.push_back(fmt::format("{} of weights are copied into another layout on loading.",
                                       pretty_bytes(runner->repacked_bytes())));
  }
  result.notes.push_back(
      "Activations are predicted for kernels that reuse their buffers in 16 bits; on the CPU each "
      "operator has its own, in f32 and in whole huge pages.");
  result.notes.push_back(memory_note(predicted));
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kMemoryExperiment{
    "memory",
    LabTopic::model,
    "What must the memory hold?",
    "Weights, keys and values, activations and overhead: 80 GB of memory do not hold a model of 80 "
    "GB.",
    "claim 21",
    "ridge predict -m llama-3-70b -M h100-sxm",
    true,
    false,
    1,
    run_memory};

}  // namespace ridge
