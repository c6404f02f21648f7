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
  const int context = lab.quick() ? 256 : 8192;
  struct Kind {
    KvStorage storage;
    const char* name;
    double bits;
  };
  LabSeries series{fmt::format("context {}", context), {}};
  std::vector<double> perplexities, bytes;
  double held = 0;
  for (const Kind& kind : {Kind{KvStorage::f32, "f32", 32}, Kind{KvStorage::f16, "f16", 16},
                           Kind{KvStorage::bf16, "bf16", 16}, Kind{KvStorage::int8, "int8", 8}}) {
    lab.step(fmt::format("keys and values in {}", kind.name));
    scoring.kv = kind.storage;
    perplexities.push_back(text_perplexity(*lab_runner(lab, load_weights(name), scoring), text));
    const auto runner =
        lab_runner(lab, lab_weights(lab, lab_shape(lab), Storage::q4_0),
                   {.kv = kind.storage, .cache_tokens = context + 16, .max_tokens = 16});
    runner->fill_cache(1);
    LabPredictor predictor(lab, *runner);
    LabStep step(*runner, 1, context);
    LabPoint point = measure_step(lab, predictor, kind.bits, step, 1e3);
    point.label = kind.name;
    bytes.push_back(sequence_bytes(runner->weights().model, context, *runner->plan().kv));
    held = std::max(held, runner->weights().bytes + runner->repacked_bytes() + bytes.back());
    result.notes.push_back(fmt::format("{:<4} {:>8}, {:>6.2f} ms, perplexity {:.4f}", kind.name,
                                       pretty_bytes(bytes.back()), point.measured,
                                       perplexities.back()));
    series.points.push_back(std::move(point));
  }
  const LabPoint &half = series.points[1], &byte = series.points[3];
  const double gain = half.measured / byte.measured;
  const double foreseen = half.band.expected / byte.band.expected;
  result.holds = gain > 1 + 0.5 * (foreseen - 1);
  result.sentence = fmt::format(
      "At {} tokens int8 keys and values are {} instead of {} in f16; decode runs {:.2f}x as "
      "fast (predicted {:.2f}x). The perplexity of {} goes from {:.3f} to {:.3f}.",
      context, pretty_bytes(bytes[3]), pretty_bytes(bytes[1]), gain, foreseen, name,
      perplexities[1], perplexities[3]);
  result.notes.push_back(memory_note(held));
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
    true,
    false,
    6,
    run_kv_bits};

}  // namespace ridge
