// A static batch waits for its longest answer; continuous batching refills a seat when it empties.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_serving.h"

namespace ridge {
namespace {

// Answers of very different lengths, in a fixed order.
std::vector<LabRequest> answer_list(int count, int prompt, int longest, int vocab) {
  std::vector<LabRequest> requests;
  uint32_t state = 1;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const int output = std::max(2, longest >> (state >> 28) % 5);  // longest, a half, ... 1/16
    requests.push_back({some_tokens(prompt, vocab, uint32_t(i) + 5), output, 0});
  }
  return requests;
}

void append_run(LabServing& all, LabServing&& part) {
  for (LabServed& served : part.requests) {
    for (double& at : served.at_s) at += all.seconds;
    all.requests.push_back(std::move(served));
  }
  all.seconds += part.seconds;
  all.steps += part.steps;
}

// When this share of the requests had their last token.
double finished_s(const LabServing& run, double share) {
  std::vector<double> ends;
  for (const LabServed& served : run.requests) ends.push_back(served.at_s.back());
  std::sort(ends.begin(), ends.end());
  return ends[size_t(share * double(ends.size())) - 1];
}

LabResult run_continuous_batching(Lab& lab) {
  LabResult result;
  result.x = {"requests finished, %", false, 0, 100};
  result.y = {"ms", false, 0, 0};
  const int seats = lab.quick() ? 2 : 4, count = 4 * seats, longest = lab.quick() ? 8 : 64;
  lab.step("making weights");
  // On CUDA steps of at most 8 tokens give the same bits whatever is in them (runner.h).
  const int prompt = lab.on_cuda() ? 4 : 16, step_tokens = lab.on_cuda() ? 8 : 16 * seats;
  LabServer server(
      lab,
      {.cache_tokens = seats * (longest + 48), .max_tokens = step_tokens, .max_sequences = seats});
  const std::vector<LabRequest> requests = answer_list(count, prompt, longest, server.vocab());
  SchedulerOptions options = server.options();
  options.prefix_cache = false;
  std::vector<ServingValue> finished;
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    finished.push_back({pretty_percent(share) + " finished, ms",
                        [share](const LabServing& run) { return 1e3 * finished_s(run, share); }});
  }
  lab.step("continuous batching");
  const ServingComparison continuous = server.compare(requests, options, finished);
  lab.step("static batches");
  const ServingComparison fixed = server.compare(
      [&](const LabStepSeconds* seconds) {
        LabServing all;
        for (size_t first = 0; first < requests.size(); first += size_t(seats)) {
          const auto batch = std::span<const LabRequest>(requests).subspan(first, size_t(seats));
          append_run(all, server.serve(batch, options, seconds));
        }
        return all;
      },
      finished);
  LabSeries refill{"continuous", {}}, wait{"static", {}};
  for (size_t i = 0; i < finished.size(); ++i) {
    refill.points.push_back(continuous.point(25.0 * double(i + 1), finished[i].of));
    wait.points.push_back(fixed.point(25.0 * double(i + 1), finished[i].of));
  }
  bool equal = true;
  for (size_t i = 0; i < requests.size(); ++i) {
    equal = equal && continuous.typical().requests[i].tokens == fixed.typical().requests[i].tokens;
  }
  result.checks.push_back({"every answer is the same under both schedules", equal});
  const double gain = wait.points.back().measured / refill.points.back().measured;
  const double foreseen = wait.points.back().band.expected / refill.points.back().band.expected;
  decide(result, gain > 1.1, {&wait.points.back(), &refill.points.back()});
  result.sentence = fmt::format(
      "{} answers of {} to {} tokens on {} seats take {} steps instead of {}, {:.0f} ms instead of "
      "{:.0f}: {:.2f}x the throughput (predicted {:.2f}x).",
      count, std::max(2, longest / 16), longest, seats, continuous.typical().steps,
      fixed.typical().steps, refill.points.back().measured, wait.points.back().measured, gain,
      foreseen);
  result.notes.push_back(
      "The static batch runs no empty seats either: finished sequences leave the step, but nobody "
      "takes their place.");
  result.series = {std::move(refill), std::move(wait)};
  return result;
}

}  // namespace

const Experiment kContinuousBatchingExperiment{
    "continuous-batching",
    LabTopic::serving,
    "Why refill a batch while it runs?",
    "A static batch waits for its longest answer; refilling seats at once raises the throughput.",
    "continuous batching",
    "ridge bench --serve 1,8,32",
    run_continuous_batching,
    run_continuous_batching,
    6,
    {60e6, 145e6, 2e9, 20e9}};

}  // namespace ridge
