// Query heads that share keys and values: the KV cache shrinks by the size of a group.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

LabResult run_gqa(Lab& lab) {
  LabResult result;
  result.x = {"KV heads", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  const int context = lab.sized(256, 8192, 32768);
  LabShape shape = lab_shape(lab);
  LabSeries series{fmt::format("context {}", context), {}};
  std::vector<double> kv;
  // On CUDA one kernel decodes where at most 8 query heads share a KV head.
  const int fewest = lab.on_cuda() ? shape.heads / 8 : 1;
  for (shape.kv_heads = fewest; shape.kv_heads <= shape.heads; shape.kv_heads *= 2) {
    lab.step(fmt::format("{} KV heads of {}", shape.kv_heads, shape.heads));
    const auto runner = lab_runner(lab, shape, lab_format(lab, Storage::q4_0),
                                   {.cache_tokens = context + 16, .max_tokens = 16});
    runner->fill_cache(1);
    LabPredictor predictor(lab, *runner);
    LabStep step(*runner, 1, context);
    series.points.push_back(measure_step(lab, predictor, shape.kv_heads, step, 1e3));
    kv.push_back(sequence_bytes(runner->weights().model, context, *runner->plan().kv));
  }
  const LabPoint &one = series.points.front(), &all = series.points.back();
  result.checks.push_back({fmt::format("{} KV heads hold {}x the bytes of {}", shape.heads,
                                       shape.heads / fewest, fewest),
                           kv.back() * fewest == shape.heads * kv.front()});
  const double ratio = all.measured / one.measured;
  const double foreseen = all.band.expected / one.band.expected;
  // At least half of the gain that the bytes foresee.
  decide(result, ratio > 1 + 0.5 * (foreseen - 1), {&one, &all});
  result.sentence = fmt::format(
      "At {} tokens the cache is {} with {} KV heads and {} with {}: {:.0f}x fewer bytes; a token "
      "takes {:.2f} ms instead of {:.2f}: {:.2f}x (predicted {:.2f}x; the weights are read all the "
      "same).",
      context, pretty_bytes(kv.back()), shape.heads, pretty_bytes(kv.front()), fewest,
      kv.back() / kv.front(), one.measured, all.measured, ratio, foreseen);
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kGqaExperiment{"gqa",
                                LabTopic::model,
                                "Why do heads share keys and values?",
                                "With 8 KV heads for 64 query heads the cache is 8x smaller, and "
                                "so is what a step reads of it.",
                                "grouped-query attention (Ainslie et al., 2023)",
                                "ridge predict -m llama-2-70b -M h100-sxm -c 8192",
                                run_gqa,
                                run_gqa,
                                4,
                                {60e6, 240e6, 2e9, 28e9}};

}  // namespace ridge
