#include "serving/engine_reports.h"

namespace ridge {
namespace {

// What holds after a step.
void fill_counts(const Scheduler& scheduler, StepReport& report) {
  report.running = scheduler.running();
  report.waiting = scheduler.waiting();
  const Scheduler::PageCounts pages = scheduler.pages();
  report.pages_free = pages.free;
  report.pages_cached = pages.cached;
  report.pages_held = pages.held;
}

}  // namespace

void EngineReports::on_stage(const ActiveRequest& request, RequestEvent::Stage stage,
                             ServingClock::time_point at, EndReason end) {
  observer_->on_request({.id = request.id,
                         .stage = stage,
                         .at = at,
                         .prompt_tokens = int(request.prompt.size()),
                         .cached_tokens = request.cached,
                         .generated_tokens = int(request.generation.generated().size()),
                         .end = end});
}

void EngineReports::on_tokens(ActiveRequest& request, int count, ServingClock::time_point now) {
  if (request.first_token_s == 0) {
    request.first_token_s = seconds_between(request.arrived, now);
    observer_->on_first_token(request.first_token_s);
    on_stage(request, RequestEvent::Stage::first_token, now);
  } else {
    observer_->on_tokens(count, seconds_between(request.last_tokens, now));
  }
  request.last_tokens = now;
}

void EngineReports::on_end(ActiveRequest& request, EndReason reason, int preemptions) {
  RequestReport report;
  report.end = reason;
  report.prompt_tokens = int(request.prompt.size());
  report.cached_tokens = request.cached;
  report.generated_tokens = int(request.generation.generated().size());
  report.max_tokens = request.max_tokens;
  report.preemptions = preemptions;
  report.scheduled_s = request.scheduled_s;
  report.first_token_s = request.first_token_s;
  const ServingClock::time_point now = ServingClock::now();
  report.end_s = seconds_between(request.arrived, now);
  report.accepted_at = std::move(request.accepted_at);
  observer_->on_finished(report);
  on_stage(request, RequestEvent::Stage::ended, now, reason);
}

StepRow& EngineReports::add_row(const ScheduledSlice& slice, StepReport& report) {
  StepRow& row = rows_.emplace_back();
  row.id = slice.id;
  row.drafts = slice.drafts;
  row.kind = !slice.decodes     ? StepRow::Kind::prefill
             : slice.drafts > 0 ? StepRow::Kind::draft
                                : StepRow::Kind::decode;
  if (slice.decodes) {
    ++report.decode_sequences;
    report.draft_tokens += slice.drafts;
    report.drafted_sequences += slice.drafts > 0 ? 1 : 0;
  } else {
    row.tokens = slice.count;
    ++report.prefill_sequences;
    report.prefill_tokens += slice.count;
  }
  return row;
}

void EngineReports::on_step(StepInFlight& step, const Scheduler& scheduler,
                            const Profile& operators) {
  StepReport& report = step.report;
  report.preempted = int(step.planned.preempted.size());
  report.rows = rows_;
  fill_counts(scheduler, report);
  observer_->on_step(report);
  if (!step.profiled) return;
  observer_->on_profile({.began = report.began,
                         .measured_s = report.measured_s,
                         .prefill_sequences = report.prefill_sequences,
                         .decode_sequences = report.decode_sequences,
                         .batch = step.batch,
                         .operators = operators.entries()});
}

void EngineReports::on_ends(const Scheduler& scheduler) {
  StepReport report;
  report.began = report.ended = ServingClock::now();
  fill_counts(scheduler, report);
  observer_->on_step(report);
}

}  // namespace ridge
