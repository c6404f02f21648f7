// Every token of the context adds its keys and values to what a step reads.
#include <fmt/format.h>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

LabResult run_context(Lab& lab) {
  LabResult result;
  result.x = {"tokens of context", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  lab.step("making weights");
  const int longest = lab.sized(512, 16384, 65536);
  const auto runner = lab_runner(lab, lab_shape(lab), lab_format(lab, Storage::q8_0),
                                 {.cache_tokens = longest + 16, .max_tokens = 16});
  runner->fill_cache(1);
  LabPredictor predictor(lab, *runner);
  LabSeries series{"decode", {}};
  for (int context = longest / 64; context <= longest; context *= 4) {
    lab.step(fmt::format("context {}", context));
    LabStep step(*runner, 1, context);
    series.points.push_back(measure_step(lab, predictor, context, step, 1e3));
  }
  const Model& model = runner->weights().model;
  const double kv = sequence_bytes(model, longest, *runner->plan().kv);
  const double bytes = weights_read(lab, *runner);
  const LabPoint &first = series.points.front(), &last = series.points.back();
  const double ratio = last.measured / first.measured;
  const double foreseen = last.band.expected / first.band.expected;
  // At least half of the growth that the bytes foresee.
  decide(result, ratio > 1 + 0.5 * (foreseen - 1), {&first, &last});
  result.sentence = fmt::format(
      "{} per token of context: at {} tokens {} of keys and values beside {} of weights. A step "
      "takes {:.1f}x as long as at {} tokens (predicted {:.1f}x).",
      pretty_bytes(kv / longest), longest, pretty_bytes(kv), pretty_bytes(bytes), ratio,
      longest / 64, foreseen);
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kContextExperiment{
    "context",
    LabTopic::model,
    "Why do long conversations slow down?",
    "The KV cache is read whole for every token: bytes per step grow with the context.",
    "KV cache (Pope et al., 2022: Efficiently Scaling Transformer Inference)",
    "ridge bench -c 128,1024,8192 -n 16",
    run_context,
    run_context,
    4,
    {60e6, 260e6, 2e9, 21e9}};

}  // namespace ridge
