// Without a KV cache each token computes all tokens before it again: quadratic in the length.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

// Each step is a prompt of everything so far.
std::vector<Token> continue_without_cache(Runner& runner, std::vector<Token> tokens, int count) {
  const size_t prompt = tokens.size();
  while (tokens.size() < prompt + size_t(count)) {
    tokens.push_back(lab_continue(runner, tokens, 1).front());
  }
  return {tokens.begin() + long(prompt), tokens.end()};
}

LabResult run_kv_cache(Lab& lab) {
  LabResult result;
  result.x = {"tokens so far", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  lab.step("loading the model");
  const int longest = lab.sized(32, 512, 4096);
  const RunnerOptions bounds{.cache_tokens = longest + 16, .max_tokens = longest};
  // On a GPU the shipped models wait for launches, whatever they compute.
  const auto runner =
      lab.on_cuda() ? lab_runner(lab, lab_shape(lab), lab_format(lab, Storage::bf16), bounds)
                    : lab_runner(lab, load_weights(lab.quick() ? "ridge-1m" : "ridge-7m"), bounds);
  LabPredictor predictor(lab, *runner);

  lab.step("the same tokens with and without the cache");
  // On CUDA steps of at most 8 tokens give the same bits whatever is in them (runner.h).
  const int vocab = runner->weights().architecture.vocab;
  const std::vector<Token> prompt = some_tokens(lab.on_cuda() ? 3 : 8, vocab, 3);
  const int count = lab.on_cuda() ? 5 : lab.quick() ? 8 : 32;
  const bool equal =
      lab_continue(*runner, prompt, count) == continue_without_cache(*runner, prompt, count);
  result.checks.push_back(
      {fmt::format("{} tokens are the same with and without the cache", count), equal});

  LabSeries on{"cache on", {}}, off{"cache off", {}};
  for (int tokens = longest / 16; tokens <= longest; tokens *= 2) {
    lab.step(fmt::format("{} tokens", tokens));
    LabStep cached(*runner, 1, tokens - 1), recomputed(*runner, 1, 0, tokens);
    on.points.push_back(measure_step(lab, predictor, tokens, cached, 1e3));
    off.points.push_back(measure_step(lab, predictor, tokens, recomputed, 1e3));
  }
  const LabPoint &cached = on.points.back(), &recomputed = off.points.back();
  const double growth_on = cached.measured / on.points.front().measured;
  const double growth_off = recomputed.measured / off.points.front().measured;
  decide(result, growth_off > 2 * growth_on && recomputed.measured > 2 * cached.measured,
         {&cached, &recomputed, &on.points.front(), &off.points.front()});
  result.sentence = fmt::format(
      "At {} tokens a token takes {:.2f} ms with the cache and {:.1f} ms without: {:.0f}x "
      "(predicted {:.0f}x). Over 16x the length the one grew {:.1f}x, the other {:.1f}x.",
      longest, cached.measured, recomputed.measured, recomputed.measured / cached.measured,
      recomputed.band.expected / cached.band.expected, growth_on, growth_off);
  result.series = {std::move(on), std::move(off)};
  return result;
}

}  // namespace

const Experiment kKvCacheExperiment{
    "kv-cache",
    LabTopic::model,
    "Why keep keys and values?",
    "Recomputing them makes each token as expensive as the whole text before it; the tokens are "
    "the same.",
    "KV cache",
    "ridge lab context",
    run_kv_cache,
    run_kv_cache,
    4,
    {60e6, 60e6, 2e9, 20e9}};

}  // namespace ridge
