// A batch shares each read of the weights: throughput grows with it until arithmetic decides, or
// until the KV cache holds no more sequences.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "engine/account/roof_system.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_curves.h"
#include "lab/lab_serving.h"
#include "predict/memory.h"

namespace ridge {
namespace {

// What the KV cache does to the batch, predicted and not measured.
std::string kv_cliff(const Runner& runner, const System& system) {
  constexpr double kContext = 4096;
  const Rank rank = make_rank(runner.weights().model, runner.plan());
  const double sequence = sequence_bytes(rank, kContext);
  const MemoryFit fit = fit_memory(rank, {}, system, engine_stack(system).memory, 1, kContext, 1);
  std::string text = fmt::format(
      "Predicted: at a context of {:.0f} a sequence adds {} of keys and values to each step, more "
      "than the weights from {:.0f} sequences on",
      kContext, pretty_bytes(sequence), std::ceil(rank.weight_bytes / sequence));
  if (fit.capacity) {
    text += fmt::format(", and {} hold {:.0f} of them", pretty_bytes(*fit.capacity), fit.max_batch);
  }
  return text + ".";
}

// Requests that arrive together, served with room for all of their keys and values, and with room
// for `held` of them: beyond that the scheduler takes the pages of the last sequences away and
// computes those again later.
struct KvCliff {
  LabSeries wide, narrow;
  int held = 0, preemptions = 0;

  const LabPoint& last() const { return narrow.points.back(); }
};

KvCliff measure_kv_cliff(Lab& lab) {
  const int held = lab.sized(2, 8, 16), most = 3 * held, prompt = 16;
  const int output = lab.sized(16, 48, 112), length = prompt + output;
  LabServer server(
      lab, {.cache_tokens = most * length, .max_tokens = most * prompt, .max_sequences = most});
  KvCliff cliff{{"served, room for all", {}}, {fmt::format("served, room for {}", held), {}}, held};
  const ServingValue rate{"tokens/s", [&](const LabServing& run) {
                            double tokens = 0;
                            for (const LabServed& r : run.requests)
                              tokens += double(r.tokens.size());
                            return tokens / run.seconds;
                          }};
  for (const int count : {held / 2, held, 2 * held, most}) {
    std::vector<LabRequest> requests;
    for (int i = 0; i < count; ++i) {
      requests.push_back({some_tokens(prompt, server.vocab(), uint32_t(i) + 21), output, 0});
    }
    SchedulerOptions options = server.options();
    options.prefix_cache = false;
    for (LabSeries* series : {&cliff.wide, &cliff.narrow}) {
      lab.step(fmt::format("{} requests, {}", count, series->name));
      server.limit_cache(series == &cliff.narrow ? held * length : 0);
      const ServingComparison runs = server.compare(requests, options, {&rate, 1});
      series->points.push_back(runs.point(count, rate.of));
      if (series == &cliff.narrow) cliff.preemptions = runs.typical().preemptions;
    }
  }
  return cliff;
}

LabResult run_batching(Lab& lab) {
  LabResult result;
  result.x = {"sequences", true, 0, 0};
  result.y = {"tokens/s", true, 0, 0};
  const int most = lab.sized(4, 64, 1024), context = 64;
  lab.step("making weights");
  auto runner = lab_runner(
      lab, lab_shape(lab), lab_format(lab, Storage::bf16),
      {.cache_tokens = most * (context + 16), .max_tokens = most, .max_sequences = most});
  LabPredictor predictor(lab, *runner);
  runner->fill_cache(1);
  LabSeries series{"decode", {}};
  int bend = 0;  // the first batch whose step waits for arithmetic
  for (int batch = 1; batch <= most; batch *= 2) {
    lab.step(fmt::format("{} sequences", batch));
    LabStep step(*runner, batch, context);
    const StepEstimate estimate = predictor.step(step.sequences());
    if (bend == 0 && estimate.wall == Wall::compute) bend = batch;
    series.points.push_back(lab.measure(
        batch, rate_of(band_of(estimate), batch), [&] { step(); },
        [&](double seconds) { return batch / seconds; }));
  }
  const std::vector<LabPoint>& points = series.points;
  const LabPoint &last = points.back(), &before = points[points.size() - 2];
  const double large = last.measured / before.measured;
  // Nearly linear: up to half the batch at which arithmetic decides, b sequences give 0.8 b times
  // the tokens of one. Flat: past it a doubling gives at most 1.3 times.
  const int linear_to = bend > 0 ? std::max(2, bend / 2) : most;
  const double linear_gain = measured_at(series, linear_to) / points[0].measured;
  const bool linear = linear_gain >= 0.8 * linear_to, flat = large <= 1.3;
  LabPoints deciding{&points.front(), point_at(series, linear_to), &before, &last};
  if (bend > 0 && 2 * bend <= most) {
    decide(result, linear && flat, deciding);
  } else if (!linear) {
    decide(result, false, deciding);
  }
  result.sentence = fmt::format(
      "{} sequences give {:.2f}x the tokens of 1, {} give {:.1f}x; the last doubling gives "
      "{:.2f}x. "
      "{}",
      linear_to, linear_gain, most, last.measured / points[0].measured, large,
      bend > 0
          ? fmt::format("Arithmetic was predicted to decide from batch {} on.", bend)
          : fmt::format("Memory was predicted to decide up to batch {}, so no ridge is in reach.",
                        most));
  result.notes.push_back(kv_cliff(*runner, predictor.system()));
  runner.reset();
  KvCliff cliff = measure_kv_cliff(lab);
  const LabPoint &room = cliff.wide.points.back(), &none = cliff.last();
  result.sentence += fmt::format(
      " Where the KV cache holds {} sequences, {:.0f} at once give {} tokens/s instead of {} "
      "(predicted {} and {}).",
      cliff.held, none.x, pretty_number(none.measured), pretty_number(room.measured),
      pretty_number(none.band.expected), pretty_number(room.band.expected));
  result.notes.push_back(fmt::format(
      "With too little room the scheduler took the pages of {} sequences away and computed them "
      "again.",
      cliff.preemptions));
  result.series = {std::move(series), std::move(cliff.wide), std::move(cliff.narrow)};
  return result;
}

}  // namespace

const Experiment kBatchingExperiment{
    "batching",
    LabTopic::model,
    "Why do more users cost so little?",
    "Decode throughput grows nearly linearly with the batch and flattens at the ridge.",
    "batching (Pope et al., 2022: Efficiently Scaling Transformer Inference)",
    "ridge predict -m llama-3-8b -M h200 -b 1,8,64,512 -c 128",
    run_batching,
    run_batching,
    12,
    {60e6, 185e6, 2e9, 30e9}};

}  // namespace ridge
