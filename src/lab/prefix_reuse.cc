// Prompts that begin alike share the pages of their beginning: it is computed once.
#include <fmt/format.h>

#include "base/units.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_serving.h"

namespace ridge {
namespace {

LabResult run_prefix_reuse(Lab& lab) {
  LabResult result;
  result.x = {"tokens of the shared beginning", false, 0, 0};
  result.y = {"ms to the first token", false, 0, 0};
  const int longest = lab.sized(64, 384, 4096), question = lab.sized(16, 16, 512);
  const int output = lab.quick() ? 4 : 8;
  lab.step("making weights");
  const int prompt = longest + question;
  // On CUDA equal steps give equal bits: chunks as long as the question are cut at the same places
  // with and without the cache.
  const int chunk = lab.on_cuda() ? question : prompt;
  LabServer server(lab, {.cache_tokens = 3 * (prompt + 32), .max_tokens = chunk});
  const int vocab = server.vocab();
  LabSeries with{"prefix cache", {}}, without{"no prefix cache", {}};
  const ServingValue first_token[] = {{"ms to the first token", [](const LabServing& run) {
                                         return 1e3 * run.requests.back().first_s();
                                       }}};
  bool equal = true;
  // Both prompts are equally long; what differs is where they part.
  for (int shared = 0; shared <= longest; shared += longest / 2) {
    std::vector<LabRequest> requests(2);
    requests[0] = {some_tokens(prompt, vocab, 11), 1, 0};
    requests[1] = {some_tokens(prompt, vocab, 12), output, 0};
    std::copy_n(requests[0].prompt.begin(), shared, requests[1].prompt.begin());
    requests[1].arrival = 1 << 20;  // when the first has ended
    std::vector<Token> answers[2];
    for (const bool cached : {false, true}) {
      lab.step(fmt::format("{} shared tokens{}", shared, cached ? ", reused" : ""));
      SchedulerOptions options = server.options();
      options.prefix_cache = cached;
      const ServingComparison runs = server.compare(requests, options, first_token);
      (cached ? with : without).points.push_back(runs.point(shared, first_token[0].of));
      answers[cached ? 1 : 0] = runs.typical().requests.back().tokens;
    }
    equal = equal && answers[0] == answers[1];
  }
  result.checks.push_back({"the answers are the same with and without the cache", equal});
  const LabPoint &reused = with.points.back(), &computed = without.points.back();
  const double gain = computed.measured / reused.measured;
  decide(result, gain > 1.5, {&reused, &computed});
  result.sentence = fmt::format(
      "With {} of {} prompt tokens in the cache the first token comes after {:.1f} ms instead of "
      "{:.1f}: {:.1f}x (predicted {:.1f}x).",
      longest, prompt, reused.measured, computed.measured, gain,
      computed.band.expected / reused.band.expected);
  result.series = {std::move(with), std::move(without)};
  return result;
}

}  // namespace

const Experiment kPrefixReuseExperiment{
    "prefix-reuse",
    LabTopic::serving,
    "What is a common beginning worth?",
    "A prompt whose beginning is in the cache computes only the rest; the tokens are the same.",
    "RadixAttention",
    "ridge serve --no-prefix-cache",
    run_prefix_reuse,
    run_prefix_reuse,
    6,
    {60e6, 160e6, 2e9, 20e9}};

}  // namespace ridge
