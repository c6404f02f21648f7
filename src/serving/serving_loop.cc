#include "serving/serving_loop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ridge {
namespace {

SchedulerOptions scheduler_options(const Runner& runner, const ServingOptions& options) {
  const RunnerOptions& bounds = runner.options();
  SchedulerOptions to;
  to.max_tokens = bounds.max_tokens;
  to.max_sequences = std::min(bounds.max_sequences, bounds.max_tokens);
  to.max_logit_rows = bounds.logit_rows();
  to.max_drafts = options.max_drafts;
  to.max_listed_pages = runner.max_listed_pages();
  to.prefix_cache = options.prefix_cache;
  to.preempt_every = options.preempt_every;
  return to;
}

// None where the options lack what a prediction assumes, or there is no runner.
std::optional<StepPredictor> make_predictor(const Runner* runner, const ServingOptions& options) {
  if (runner == nullptr || !options.system || !options.stack) return std::nullopt;
  return StepPredictor(runner->weights().model, runner->plan(), *options.system, *options.stack);
}

std::unique_ptr<Speculation> make_speculation(const Runner& runner, ServingOptions& options,
                                              std::optional<StepPredictor>& predictor,
                                              ActiveRequests& requests) {
  if (options.max_drafts <= 0) return nullptr;
  auto draft_predictor = make_predictor(options.draft.get(), options);
  return std::make_unique<Speculation>(
      std::move(options.draft), runner.weights().architecture.vocab,
      predictor ? &*predictor : nullptr, std::move(draft_predictor), [&requests](RequestId id) {
        const ActiveRequest& request = requests.at(id);
        return ModelDrafter::Sampling{&request.generation.sampler(), request.prompt.size()};
      });
}

}  // namespace

ServingLoop::ServingLoop(std::unique_ptr<Runner> runner, ServingOptions options,
                         ServingEngine::Outputs outputs, ServingObserver* observer,
                         EngineInbox& inbox)
    : runner_(std::move(runner)),
      outputs_(std::move(outputs)),
      max_drafts_(options.max_drafts),
      on_failure_(std::move(options.on_failure)),
      lost_(std::move(options.lost)),
      inbox_(&inbox),
      pace_(std::move(options.pace)),
      reports_(observer),
      pool_(runner_->page_count(), runner_->options().page_tokens),
      predictor_(make_predictor(runner_.get(), options)),
      speculation_(make_speculation(*runner_, options, predictor_, requests_)),
      scheduler_(scheduler_options(*runner_, options), pool_,
                 speculation_ ? &speculation_->drafter() : nullptr),
      requests_(scheduler_, reports_),
      sampler_(*runner_),
      launcher_({*runner_, scheduler_, requests_, sampler_, reports_},
                predictor_ ? &*predictor_ : nullptr, speculation_ != nullptr),
      lander_({*runner_, scheduler_, requests_, sampler_, reports_}, speculation_.get(),
              launcher_.operators()) {
  if (pace_) pace_watch_.emplace(*pace_, [this] { inbox_->wake(); });
}

void ServingLoop::run() {
  try {
    while (take_events()) advance();
    end_all(EndReason::cancelled, "");
  } catch (const std::exception& error) {
    inbox_->fail(error.what());
    end_all(EndReason::failed, error.what());
    if (on_failure_) on_failure_(error.what());
  }
}

// Waits for something to do. False when the engine ends.
bool ServingLoop::take_events() {
  if (in_flight_.empty() && inbox_->empty()) {
    if (scheduler_.idle()) {
      last_landed_.reset();
      check_idle_pool();
      inbox_->wait(lost_);
    } else if (held()) {
      last_landed_.reset();
      reports_.on_ends(scheduler_);  // no step will say what has arrived
      inbox_->wait(lost_, [this] { return !held(); });
    }
  }
  EngineInbox::Events events;
  if (!inbox_->take(events)) return false;
  if (events.look) reports_.observer().between_steps(scheduler_);
  for (std::unique_ptr<ActiveRequest>& request : events.arrived) {
    requests_.add(std::move(request), max_drafts_);
  }
  std::vector<RequestOutput> ended;
  for (const RequestId id : events.cancelled) {
    ActiveRequest* const request = requests_.find(id);
    if (request != nullptr) requests_.end(*request, EndReason::cancelled, "", ended);
  }
  update_load();
  if (!ended.empty()) {
    reports_.on_ends(scheduler_);
    outputs_(std::move(ended));
  }
  return true;
}

// Launches a step where one may be launched, and lands the oldest where not.
void ServingLoop::advance() {
  const auto may_queue = [&] {
    return int(in_flight_.size()) < Runner::kMaxStepsInFlight && in_flight_.back().may_run_ahead;
  };
  const Launch result = in_flight_.empty() || may_queue() ? launch() : Launch::nothing_to_run;
  // With room for one more the next step is planned first, while the device works.
  if (result == Launch::done && may_queue()) return;
  if (!in_flight_.empty()) return land();
  if (result == Launch::nothing_to_run && !scheduler_.idle()) {
    throw Error("requests wait, but none can run");
  }
}

ServingLoop::Launch ServingLoop::launch() {
  std::optional<StepPace::Permit> permit;
  if (pace_ && !(permit = pace_->take())) return Launch::held;
  StepInFlight step = std::exchange(spare_, {});
  const bool alone = in_flight_.empty();
  if (!launcher_.launch(step, alone)) {
    spare_ = std::move(step);
    if (permit) pace_->give_back(*permit);
    return Launch::nothing_to_run;
  }
  if (alone && last_landed_) {
    step.report.host_gap_s = seconds_between(*last_landed_, step.launched);
  }
  in_flight_.push_back(std::move(step));
  return Launch::done;
}

// Waits for the oldest step and hands its tokens out.
void ServingLoop::land() {
  StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  const ServingClock::time_point began =
      last_landed_ ? std::max(step.launched, *last_landed_) : step.launched;
  if (pace_ && pace_->least_s() > 0) wait_for_pace(began);
  std::vector<RequestOutput> made;
  last_landed_ = lander_.land(step, began, in_flight_.empty(), made);
  update_load();
  spare_ = std::move(step);
  if (!made.empty()) outputs_(std::move(made));
}

// Until a step that began then has taken as long as the pace says. Another pace ends the wait, as
// does the end of the engine.
void ServingLoop::wait_for_pace(ServingClock::time_point began) {
  const double least_s = pace_->least_s();
  const auto least = std::chrono::duration<double>(least_s);
  inbox_->wait_until(began + std::chrono::duration_cast<ServingClock::duration>(least),
                     [&] { return pace_->least_s() != least_s; });
}

void ServingLoop::end_all(EndReason reason, const std::string& error) {
  std::vector<RequestOutput> ended;
  for (const std::unique_ptr<ActiveRequest>& request : inbox_->take_arrivals()) {
    requests_.end(*request, reason, error, ended);
  }
  requests_.end_all(reason, error, ended);
  if (!ended.empty()) outputs_(std::move(ended));
  update_load();
}

void ServingLoop::update_load() { inbox_->set_load(scheduler_.waiting(), !requests_.empty()); }

// Without requests every page is free or cached. A lost page is a fault that must not stay
// unnoticed.
void ServingLoop::check_idle_pool() const {
  scheduler_.check_pages();
  if (scheduler_.pages().held != 0) throw Error("pages are held, but no request is there");
}

}  // namespace ridge
