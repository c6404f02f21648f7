#include "lab/lab_serving.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "measure/cpu/noise.h"
#include "serving/step_predictor.h"

namespace ridge {
namespace {

// Gives a token for each row of logits of the step, in order.
using DrawRows = std::function<void(const ScheduledStep&, std::vector<Token>&)>;
// Seconds of the step, from before it was planned.
using StepClockFn = std::function<double(const ScheduledStep&)>;

void take_tokens(Scheduler& scheduler, const ScheduledStep& step, std::span<const Token> rows,
                 std::span<const LabRequest> requests, LabServing& run) {
  size_t row = 0;
  for (const ScheduledSlice& slice : step.slices) {
    const std::span<const Token> own = rows.subspan(row, size_t(slice.logits));
    row += size_t(slice.logits);
    if (!slice.samples) continue;
    const std::span<const Token> drawn = own.last(size_t(slice.drafts) + 1);
    const std::span<const Token> drafts = step.tokens_of(slice).last(size_t(slice.drafts));
    size_t kept = 0;
    while (kept < drafts.size() && drafts[kept] == drawn[kept]) ++kept;
    run.accepted += long(kept);
    run.drafted += std::min<long>(slice.drafts, long(kept) + 1);
    scheduler.accept(slice, drawn.first(kept + 1));
    LabServed& served = run.requests[size_t(slice.id)];
    const auto wanted = size_t(requests[size_t(slice.id)].output);
    for (size_t i = 0; i <= kept && served.tokens.size() < wanted; ++i) {
      served.tokens.push_back(drawn[i]);
      served.at_s.push_back(run.seconds);
    }
    if (served.tokens.size() == wanted) scheduler.remove(slice.id);
  }
}

LabServing drive(Scheduler& scheduler, std::span<const LabRequest> requests, const DrawRows& draw,
                 const StepClockFn& seconds) {
  LabServing run;
  run.requests.resize(requests.size());
  ScheduledStep step;
  std::vector<Token> rows;
  size_t next = 0;
  while (next < requests.size() || !scheduler.idle()) {
    while (next < requests.size() && (requests[next].arrival <= run.steps || scheduler.idle())) {
      const LabRequest& request = requests[next];
      run.requests[next].arrival_s = run.seconds;
      scheduler.add({.id = RequestId(next),
                     .prompt = request.prompt,
                     .max_length = int(request.prompt.size()) + request.output,
                     .priority = 0,
                     .cache_salt = "",
                     .all_prompt_rows = false});
      ++next;
    }
    scheduler.next(step);
    if (step.empty()) throw Error("the KV cache is too small for the experiment's requests");
    draw(step, rows);
    run.seconds += seconds(step);
    ++run.steps;
    run.preemptions += int(step.preempted.size());
    take_tokens(scheduler, step, rows, requests, run);
  }
  return run;
}

}  // namespace

double LabServed::longest_gap_s() const {
  double longest = 0;
  for (size_t i = 1; i < at_s.size(); ++i) longest = std::max(longest, at_s[i] - at_s[i - 1]);
  return longest;
}

SchedulerOptions lab_scheduler_options(const Runner& runner) {
  SchedulerOptions options;
  options.max_tokens = runner.options().max_tokens;
  options.max_sequences = runner.options().max_sequences;
  options.max_logit_rows = runner.options().logit_rows();
  return options;
}

LabServing serve_measured(Scheduler& scheduler, std::span<const LabRequest> requests,
                          Runner& runner) {
  std::vector<Slice> slices;
  std::vector<TopLogitsRequest> greedy;
  // A step lasts from the end of the one before: planning and drafting are part of it.
  auto last = std::chrono::steady_clock::now();
  return drive(
      scheduler, requests,
      [&](const ScheduledStep& step, std::vector<Token>& rows) {
        slices.clear();
        int count = 0;
        for (const ScheduledSlice& slice : step.slices) {
          slices.push_back({step.tokens_of(slice), slice.past, slice.pages, slice.logits});
          count += slice.logits;
        }
        runner.copy_pages(step.copies);
        runner.run(slices);
        rows.clear();
        if (count == 0) return;
        greedy.resize(size_t(count));
        for (const TopLogits& top : runner.top_logits(greedy)) rows.push_back(top.chosen.token);
      },
      [&](const ScheduledStep&) {
        const auto now = std::chrono::steady_clock::now();
        const std::chrono::duration<double> took = now - last;
        last = now;
        return took.count();
      });
}

LabServing serve_predicted(Scheduler& scheduler, std::span<const LabRequest> requests,
                           const LabStepSeconds& seconds) {
  std::vector<Sequences> batch;
  return drive(
      scheduler, requests,
      [](const ScheduledStep& step, std::vector<Token>& rows) {
        rows.clear();
        for (const ScheduledSlice& slice : step.slices) {
          rows.insert(rows.end(), size_t(slice.logits), Token{0});
        }
      },
      [&](const ScheduledStep& step) {
        describe_step(step, batch);
        return seconds(batch);
      });
}

LabBand ServingComparison::band(const Value& value) const {
  // A rate falls where times rise.
  const auto [least, greatest] = std::minmax({value(low), value(high)});
  return {least, value(expected), greatest};
}

LabPoint ServingComparison::point(double x, const Value& value) const {
  LabPoint point;
  point.x = x;
  point.band = band(value);
  std::vector<double> values;
  for (const LabServing& run : measured) values.push_back(value(run));
  std::sort(values.begin(), values.end());
  point.measured = values[values.size() / 2];
  point.spread = (values.back() - values.front()) / point.measured;
  point.doubt = doubt;
  if (point.doubt.empty() && point.spread > 0.25) point.doubt = "the repeats differ widely";
  return point;
}

LabServer::LabServer(Lab& lab, const RunnerOptions& bounds)
    : lab_(lab),
      runner_(lab_runner(lab, lab_shape(lab), lab_format(lab, Storage::bf16), bounds)),
      predictor_(lab, *runner_) {}

LabServing LabServer::serve(std::span<const LabRequest> requests, const SchedulerOptions& options,
                            const LabStepSeconds* seconds) {
  const int page = runner_->options().page_tokens;
  PagePool pool(cache_tokens_ > 0 ? cache_tokens_ / page : runner_->page_count(), page);
  Scheduler scheduler(options, pool);
  return seconds ? serve_predicted(scheduler, requests, *seconds)
                 : serve_measured(scheduler, requests, *runner_);
}

ServingComparison LabServer::compare(std::span<const LabRequest> requests,
                                     const SchedulerOptions& options,
                                     std::span<const ServingValue> values) {
  return compare([&](const LabStepSeconds* seconds) { return serve(requests, options, seconds); },
                 values);
}

ServingComparison LabServer::compare(const LabSchedule& schedule,
                                     std::span<const ServingValue> values) {
  ServingComparison comparison;
  const auto predicted = [&](double LabBand::*end) {
    const LabStepSeconds seconds = [&](std::span<const Sequences> batch) {
      return band_of(predictor_.step(batch)).*end;
    };
    return schedule(&seconds);
  };
  comparison.low = predicted(&LabBand::low);
  comparison.expected = predicted(&LabBand::expected);
  comparison.high = predicted(&LabBand::high);
  for (const ServingValue& value : values) lab_.announce(comparison.band(value.of), value.name);
  schedule(nullptr);  // warms caches and page tables
  const Disturbance before = disturbance_now();
  for (int repeat = 0; repeat < (lab_.quick() ? 1 : 3); ++repeat) {
    lab_.check_interrupt();
    comparison.measured.push_back(schedule(nullptr));
  }
  comparison.doubt = doubt_between(before, disturbance_now());
  std::sort(comparison.measured.begin(), comparison.measured.end(),
            [](const LabServing& a, const LabServing& b) { return a.seconds < b.seconds; });
  return comparison;
}

}  // namespace ridge
