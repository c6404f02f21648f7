// A long prompt stalls the streams that run beside it, unless it comes in chunks.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_serving.h"

namespace ridge {
namespace {

LabResult run_chunked_prefill(Lab& lab) {
  LabResult result;
  result.x = {"tokens of a step at most", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  const int prompt = lab.sized(64, 384, 4096), streams = 4, output = lab.sized(8, 24, 32);
  lab.step("making weights");
  const int whole = prompt + streams;
  LabServer server(lab, {.cache_tokens = prompt + 64 + streams * 64,
                         .max_tokens = whole,
                         .max_sequences = streams + 1});
  const int vocab = server.vocab();
  std::vector<LabRequest> requests;
  for (int s = 0; s < streams; ++s) {
    requests.push_back({some_tokens(8, vocab, uint32_t(s) + 7), output, 0});
  }
  requests.push_back({some_tokens(prompt, vocab, 99), 1, 4});
  const auto stall = [&](const LabServing& run) {
    double longest = 0;
    for (int s = 0; s < streams; ++s) {
      longest = std::max(longest, run.requests[size_t(s)].longest_gap_s());
    }
    return 1e3 * longest;
  };
  const auto first = [](const LabServing& run) { return 1e3 * run.requests.back().first_s(); };
  LabSeries stalls{"longest pause of a stream", {}}, firsts{"first token of the prompt", {}};
  const ServingValue values[] = {{stalls.name, stall}, {firsts.name, first}};
  std::vector<std::vector<Token>> answers;
  bool equal = true;
  std::vector<int> budgets{whole};
  const int least = lab.sized(16, 16, 128);
  for (int budget = whole / 3; budget >= least; budget /= 3) budgets.push_back(budget);
  for (const int budget : budgets) {
    lab.step(fmt::format("steps of up to {} tokens", budget));
    SchedulerOptions options = server.options();
    options.max_tokens = budget;
    options.prefix_cache = false;
    const ServingComparison runs = server.compare(requests, options, values);
    stalls.points.push_back(runs.point(budget, stall));
    firsts.points.push_back(runs.point(budget, first));
    std::vector<std::vector<Token>> tokens;
    for (const LabServed& served : runs.typical().requests) tokens.push_back(served.tokens);
    if (answers.empty()) answers = tokens;
    equal = equal && answers == tokens;
  }
  if (lab.on_cuda()) {
    result.notes.push_back(fmt::format(
        "On CUDA a sum over many tokens is cut by how many there are, so answers may differ where "
        "two tokens are almost equally likely: here {}.",
        equal ? "all are the same" : "some differ"));
  } else {
    result.checks.push_back({"every answer is the same with every chunk", equal});
  }
  const LabPoint &uncut = stalls.points.front(), &cut = stalls.points.back();
  decide(result, cut.measured < 0.7 * uncut.measured, {&cut, &uncut});
  const auto time = [](double ms) { return pretty_time(ms / 1e3); };
  result.sentence = fmt::format(
      "A prompt of {} tokens stops {} running streams for {} when it runs at once and for {} in "
      "steps of {} tokens (predicted {} and {}); its own first token comes after {} instead of {}.",
      prompt, streams, time(uncut.measured), time(cut.measured), budgets.back(),
      time(uncut.band.expected), time(cut.band.expected), time(firsts.points.back().measured),
      time(firsts.points.front().measured));
  result.series = {std::move(stalls), std::move(firsts)};
  return result;
}

}  // namespace

const Experiment kChunkedPrefillExperiment{
    "chunked-prefill",
    LabTopic::serving,
    "Why cut long prompts into chunks?",
    "A long prompt that runs at once stalls everybody else; chunks bound the pause.",
    "chunked prefill",
    "ridge serve --chunk 128",
    run_chunked_prefill,
    run_chunked_prefill,
    6,
    {60e6, 155e6, 2e9, 20e9}};

}  // namespace ridge
