// The tokens of a prompt share each read of the weights; the tokens of an answer cannot.
#include <fmt/format.h>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

LabResult run_prefill_decode(Lab& lab) {
  LabResult result;
  result.x = {"tokens of the prompt", true, 0, 0};
  result.y = {"tokens/s", true, 0, 0};
  lab.step("making weights");
  const int longest = lab.sized(16, 256, 4096);
  const auto runner = lab_runner(lab, lab_shape(lab), lab_format(lab, Storage::bf16),
                                 {.cache_tokens = 2 * longest, .max_tokens = longest});
  LabPredictor predictor(lab, *runner);
  LabSeries prompts{"prompt", {}};
  Wall first = Wall::memory, last = Wall::memory;
  double intensity = 0;
  for (int tokens = 1; tokens <= longest; tokens *= 4) {
    lab.step(fmt::format("a prompt of {} tokens", tokens));
    LabStep step(*runner, 1, 0, tokens);
    const StepEstimate estimate = predictor.step(step.sequences());
    (tokens == 1 ? first : last) = estimate.wall;
    intensity = estimate.intensity();
    prompts.points.push_back(lab.measure(
        tokens, rate_of(band_of(estimate), tokens), [&] { step(); },
        [&](double seconds) { return tokens / seconds; }));
  }
  LabSeries decode{"decode", {}};
  lab.step("decoding after the longest prompt");
  LabStep step(*runner, 1, longest);
  decode.points.push_back(lab.measure(
      longest, rate_of(band_of(predictor.step(step.sequences())), 1), [&] { step(); },
      [](double seconds) { return 1 / seconds; }));
  const LabPoint& prompt = prompts.points.back();
  const double ratio = prompt.measured / decode.points.front().measured;
  const double foreseen = prompt.band.expected / decode.points.front().band.expected;
  decide(result, ratio > 2 && first == Wall::memory && last == Wall::compute,
         {&prompt, &decode.points.front()});
  result.sentence = fmt::format(
      "A prompt of {} tokens runs at {} tokens/s, decode after it at {}: {:.1f}x (predicted "
      "{:.1f}x). One token waits for {}, {} tokens at {:.0f} FLOP/byte for {}.",
      longest, pretty_number(prompt.measured), pretty_number(decode.points.front().measured), ratio,
      foreseen, wall_name(first), longest, intensity, wall_name(last));
  result.series = {std::move(prompts), std::move(decode)};
  return result;
}

}  // namespace

const Experiment kPrefillDecodeExperiment{
    "prefill-decode",
    LabTopic::model,
    "Why is reading a prompt faster than writing an answer?",
    "Prefill is bound by arithmetic, decode by memory: the same model, opposite walls.",
    "two phases (Patel et al., 2023: Splitwise)",
    "ridge bench -p 16,64,256 -n 32",
    run_prefill_decode,
    run_prefill_decode,
    5,
    {60e6, 155e6, 2e9, 20e9}};

}  // namespace ridge
