// Keys and values in fewer bits: fewer bytes per token of context, and what that costs.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"
#include "lab/lab_text.h"

namespace ridge {
namespace {

LabResult run_kv_bits(Lab& lab) {
  LabResult result;
  result.x = {"bits per key or value", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  const char* name = lab.quick() ? "ridge-1m" : "ridge-7m";
  RunnerOptions scoring{.cache_tokens = 512, .max_tokens = 32, .max_logit_rows = 32};
  lab.step("writing a text");
  const std::vector<Token> text =
      write_text(*lab_runner(lab, load_weights(name), scoring), lab.quick() ? 32 : 384);
  const int context = lab.sized(256, 8192, 32768);
  struct Kind {
    KvStorage storage;
    const char* name;
    double bits;
  };
  LabSeries series{fmt::format("context {}", context), {}};
  std::vector<double> perplexities, bytes;
  // The sentence compares the first two.
  const std::vector<Kind> kinds = lab.on_cuda() ? std::vector<Kind>{{KvStorage::bf16, "bf16", 16},
                                                                    {KvStorage::int8, "int8", 8},
                                                                    {KvStorage::f16, "f16", 16},
                                                                    {KvStorage::fp8, "fp8", 8}}
                                                : std::vector<Kind>{{KvStorage::f16, "f16", 16},
                                                                    {KvStorage::int8, "int8", 8},
                                                                    {KvStorage::bf16, "bf16", 16},
                                                                    {KvStorage::f32, "f32", 32}};
  for (const Kind& kind : kinds) {
    lab.step(fmt::format("keys and values in {}", kind.name));
    scoring.kv = kind.storage;
    perplexities.push_back(text_perplexity(*lab_runner(lab, load_weights(name), scoring), text));
    const LabFormat four_bits = lab_format(lab, Storage::q4_0);
    const auto runner = lab_runner(lab, lab_weights(lab, lab_shape(lab), four_bits.storage),
                                   {.device_format = four_bits.device,
                                    .kv = kind.storage,
                                    .cache_tokens = context + 16,
                                    .max_tokens = 16});
    runner->fill_cache(1);
    LabPredictor predictor(lab, *runner);
    LabStep step(*runner, 1, context);
    LabPoint point = measure_step(lab, predictor, kind.bits, step, 1e3);
    point.label = kind.name;
    bytes.push_back(sequence_bytes(runner->weights().model, context, *runner->plan().kv));
    result.notes.push_back(fmt::format("{:<4} {:>8}, {:>6.2f} ms, perplexity {:.4f}", kind.name,
                                       pretty_bytes(bytes.back()), point.measured,
                                       perplexities.back()));
    series.points.push_back(std::move(point));
  }
  const LabPoint &half = series.points[0], &byte = series.points[1];
  const double gain = half.measured / byte.measured;
  const double foreseen = half.band.expected / byte.band.expected;
  // At least half of the gain that the bytes foresee.
  decide(result, gain > 1 + 0.5 * (foreseen - 1), {&half, &byte});
  result.sentence = fmt::format(
      "At {} tokens int8 keys and values are {} instead of {} in {}; decode runs {:.2f}x as "
      "fast (predicted {:.2f}x). The perplexity of {} goes from {:.3f} to {:.3f}.",
      context, pretty_bytes(bytes[1]), pretty_bytes(bytes[0]), kinds[0].name, gain, foreseen, name,
      perplexities[0], perplexities[1]);
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kKvBitsExperiment{
    "kv-bits",
    LabTopic::formats,
    "What does a KV cache in fewer bits gain?",
    "Half the bits are half the bytes of the cache, and steps at a long context gain that.",
    "KV-cache quantization",
    "ridge bench --kv int8 -c 8192",
    run_kv_bits,
    run_kv_bits,
    6,
    {60e6, 240e6, 2e9, 14e9}};

}  // namespace ridge
