#include "serving/serving_engine.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "engine/cuda/device_model.h"
#include "serving/model_drafter.h"
#include "serving/ngram_drafter.h"
#include "serving/scheduler.h"
#include "serving/step_predictor.h"

namespace ridge {
namespace {

using Clock = ServingClock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

int context_limit(const Runner& runner, const ServingOptions& options) {
  const RunnerOptions& bounds = runner.options();
  int limit = runner.page_count() * bounds.page_tokens;
  const int own = runner.weights().architecture.max_context;
  if (own > 0) limit = std::min(limit, own);
  return options.max_context > 0 ? std::min(limit, options.max_context) : limit;
}

SchedulerOptions scheduler_options(const Runner& runner, const ServingOptions& options) {
  const RunnerOptions& bounds = runner.options();
  SchedulerOptions to;
  to.max_tokens = bounds.max_tokens;
  to.max_sequences = std::min(bounds.max_sequences, bounds.max_tokens);
  to.max_logit_rows = bounds.logit_rows();
  to.max_drafts = options.max_drafts;
  if (runner.queues_steps()) to.max_listed_pages = cuda::kMaxSharing * runner.page_count();
  to.prefix_cache = options.prefix_cache;
  to.preempt_every = options.preempt_every;
  return to;
}

}  // namespace

struct ServingEngine::Impl {
  // A request between its submission and its end.
  struct Active {
    Active(const Weights& weights, ServingRequest&& from)
        : id(from.id),
          priority(from.priority),
          prompt_logprobs(from.prompt_logprobs),
          max_drafts(from.max_drafts),
          salt(std::move(from.cache_salt)),
          max_tokens(from.generate.max_tokens),
          prompt(std::move(from.prompt)),
          generation(weights, from.generate, {}, prompt, std::move(from.grammar)),
          arrived(Clock::now()) {}

    RequestId id;
    int priority, prompt_logprobs;
    std::optional<int> max_drafts;
    std::string salt;
    int max_tokens;
    std::vector<Token> prompt;
    Generation generation;
    Clock::time_point arrived, last_tokens;
    int cached = 0;
    double scheduled_s = 0, first_token_s = 0;
    bool reported_cached = false;
    std::vector<Sampled> prompt_sampled;
    std::vector<int> accepted_at;
  };

  // A step that was launched and whose tokens have not been taken.
  struct Flight {
    ScheduledStep step;
    std::vector<TopLogitsRequest> requests;  // one for each row of logits
    std::vector<bool> whole_row;             // rows that only the whole row of logits decides
    int rows = 0;
    Clock::time_point launched;
    double planning_s = 0;  // before, drafts included
    StepReport report;
    bool profiled = false;
    std::vector<Sequences> batch;  // of a profiled step
    bool may_run_ahead = true;  // the next step may be launched before this one's tokens are known
  };

  Impl(std::unique_ptr<Runner> with, ServingOptions options, Outputs sink, ServingObserver* watch)
      : runner(std::move(with)),
        outputs(std::move(sink)),
        observer(watch != nullptr ? watch : &nobody),
        context(context_limit(*runner, options)),
        max_waiting(options.max_waiting),
        max_drafts(options.max_drafts),
        on_failure(std::move(options.on_failure)),
        lost(std::move(options.lost)),
        pool(runner->page_count(), runner->options().page_tokens) {
    const Weights& weights = runner->weights();
    if (options.system && options.stack) {
      predictor.emplace(weights.model, runner->plan(), *options.system, *options.stack);
    }
    if (options.max_drafts > 0) make_drafter(options);
    scheduler.emplace(scheduler_options(*runner, options), pool, drafter.get());
    thread = std::thread([this] { loop(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_one();
    thread.join();
  }

  void make_drafter(ServingOptions& options) {
    const Weights& weights = runner->weights();
    if (options.draft != nullptr && options.system && options.stack) {
      draft_predictor.emplace(options.draft->weights().model, options.draft->plan(),
                              *options.system, *options.stack);
    }
    DraftPolicy::StepSeconds seconds;
    if (predictor) {
      seconds = [this](int sequences, int drafts, double past) {
        const Sequences step{double(sequences), 1.0 + drafts, past, 1.0 + drafts};
        const Sequences draft{double(sequences), 1, past, 1};
        const double each = draft_predictor ? draft_predictor->estimate({&draft, 1}).expected_s : 0;
        return predictor->estimate({&step, 1}).expected_s + drafts * each;
      };
    }
    policy.emplace(std::move(seconds));
    if (options.draft == nullptr) {
      drafter = std::make_unique<NgramDrafter>(*policy);
      return;
    }
    drafter = std::make_unique<ModelDrafter>(
        std::move(options.draft), weights.architecture.vocab, *policy, [this](RequestId id) {
          const Active& request = *active.at(id);
          return ModelDrafter::Sampling{&request.generation.sampler(), request.prompt.size()};
        });
  }

  // The loop.

  void loop() {
    try {
      while (take_events()) advance();
      end_all(EndReason::cancelled, "");
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        failed = error.what();
      }
      end_all(EndReason::failed, error.what());
      if (on_failure) on_failure(error.what());
    }
  }

  // A rank that ends while nothing runs would otherwise be noticed by the next request only.
  template <typename Woken>
  void wait_until(std::unique_lock<std::mutex>& lock, const Woken& woken) {
    if (!lost) return wake.wait(lock, woken);
    while (!wake.wait_for(lock, std::chrono::milliseconds(100), woken)) {
      if (const std::string why = lost(); !why.empty()) throw Error(why);
    }
  }

  // Waits for something to do. False when the engine ends.
  bool take_events() {
    std::vector<std::unique_ptr<Active>> arrived;
    std::vector<RequestId> cancelled;
    {
      std::unique_lock lock(mutex);
      const auto nothing = [&] {
        return arrivals.empty() && cancels.empty() && flights.empty() && scheduler->idle() &&
               !look.load(std::memory_order_relaxed);
      };
      if (nothing()) {
        last_landed.reset();
        check_idle_pool();
        wait_until(lock, [&] { return stopping || !nothing(); });
      }
      if (stopping) return false;
      arrived.swap(arrivals);
      cancelled.swap(cancels);
    }
    if (look.load(std::memory_order_relaxed) && look.exchange(false)) {
      observer->between_steps(*scheduler);
    }
    for (std::unique_ptr<Active>& request : arrived) {
      const RequestId id = request->id;
      report_stage(*request, RequestEvent::Stage::arrived, request->arrived);
      Arrival arrival;
      arrival.id = id;
      arrival.prompt = request->prompt;
      arrival.max_length = int(request->prompt.size()) + request->max_tokens;
      arrival.priority = request->priority;
      arrival.cache_salt = request->salt;
      arrival.all_prompt_rows = request->prompt_logprobs != kNoLogprobs;
      arrival.max_drafts = request->max_drafts.value_or(max_drafts);
      scheduler->add(std::move(arrival));
      active.emplace(id, std::move(request));
    }
    std::vector<RequestOutput> ended;
    for (const RequestId id : cancelled) {
      if (const auto found = active.find(id); found != active.end()) {
        end(*found->second, EndReason::cancelled, "", ended);
      }
    }
    count_waiting();
    if (!ended.empty()) {
      StepReport report;
      report.began = report.ended = Clock::now();
      fill_counts(report);
      observer->on_step(report);
      outputs(std::move(ended));
    }
    return true;
  }

  // Launches a step where one may be launched, and takes the tokens of the oldest where not.
  void advance() {
    const bool may_launch = flights.empty() || (int(flights.size()) < Runner::kMaxStepsInFlight &&
                                                flights.back().may_run_ahead);
    if (may_launch && launch()) {
      // With room for one more the next step is planned first, while the device works.
      if (flights.back().may_run_ahead && int(flights.size()) < Runner::kMaxStepsInFlight) return;
    } else if (flights.empty() && !scheduler->idle()) {
      throw Error("requests wait, but none can run");
    }
    if (!flights.empty()) land();
  }

  bool launch() {
    Flight flight = std::exchange(spare, Flight{});
    const Clock::time_point planned = Clock::now();
    scheduler->next(flight.step);
    const ScheduledStep& step = flight.step;
    for (const auto& [id, cached] : step.admitted) {
      Active& request = *active.at(id);
      const Clock::time_point now = Clock::now();
      request.cached = cached;
      request.scheduled_s = seconds_between(request.arrived, now);
      observer->on_prefix_lookup(int(request.prompt.size()), cached);
      report_stage(request, RequestEvent::Stage::admitted, now);
    }
    for (const RequestId id : step.preempted) {
      report_stage(*active.at(id), RequestEvent::Stage::preempted, Clock::now());
    }
    if (step.empty()) {
      const bool again = !step.preempted.empty() && flights.empty();
      spare = std::move(flight);
      // Preempted sequences wait for the next step, which need not wait for anything.
      if (again) return launch();
      return false;
    }
#ifndef NDEBUG
    scheduler->check_pages();
#endif
    flight.report = {};
    predict(flight);
    flight.launched = Clock::now();
    flight.planning_s = seconds_between(planned, flight.launched);
    if (flights.empty() && last_landed) {
      flight.report.host_gap_s = seconds_between(*last_landed, flight.launched);
    }
    if (!step.copies.empty()) runner->copy_pages(step.copies);
    slices.clear();
    for (const ScheduledSlice& slice : step.slices) {
      slices.push_back({step.tokens_of(slice), slice.past, slice.pages, slice.logits});
    }
    run_step(flight);
    request_rows(flight);
    flights.push_back(std::move(flight));
    // While the device works.
    for (const ScheduledSlice& slice : flights.back().step.slices) {
      Active& request = *active.at(slice.id);
      if (slice.samples && request.generation.has_mask()) request.generation.update_mask();
    }
    return true;
  }

  // On CUDA steps are queued, and timing the operators of one would wait for it.
  void run_step(Flight& flight) {
    flight.profiled = predictor && observer->wants_profile();
    if (!flight.profiled) return runner->run(slices);
    flight.batch = described;
    profile.clear();
    if (runner->queues_steps()) return runner->run(slices);
    runner->set_profile(&profile);
    runner->run(slices);
    runner->set_profile(nullptr);
  }

  void predict(Flight& flight) {
    if (!predictor) return;
    describe_step(flight.step, described);
    const StepEstimate estimate = predictor->estimate(described);
    flight.report.predicted_s = estimate.expected_s;
    flight.report.roof_s = estimate.roof_s;
    flight.report.flops = estimate.flops;
    flight.report.bytes = estimate.bytes;
    flight.report.wall = estimate.wall;
  }

  // What must be known of each row of logits to draw from it.
  void request_rows(Flight& flight) {
    flight.rows = 0;
    flight.may_run_ahead = runner->queues_steps() && drafter == nullptr;
    for (const ScheduledSlice& slice : flight.step.slices) flight.rows += slice.logits;
    if (flight.requests.size() < size_t(flight.rows)) flight.requests.resize(size_t(flight.rows));
    flight.whole_row.assign(size_t(flight.rows), false);
    size_t row = 0;
    for (const ScheduledSlice& slice : flight.step.slices) {
      Active& request = *active.at(slice.id);
      const int drawn = slice.samples ? 1 + slice.drafts : 0;
      for (int i = 0; i < slice.logits; ++i, ++row) {
        TopLogitsRequest& wanted = flight.requests[row];
        const int position = slice.past + slice.count - slice.logits + i;
        if (i >= slice.logits - drawn) {
          flight.whole_row[row] =
              !request_draw(request, flight.step, slice, i - (slice.logits - drawn), wanted);
        } else {
          wanted = {.count = std::max(request.prompt_logprobs, 1),
                    .tokens = {request.prompt[size_t(position) + 1]}};
        }
      }
      if (slice.samples && (!request.generation.sampler().device_draws() ||
                            request.generation.has_mask() || slice.logits > drawn)) {
        flight.may_run_ahead = false;
      }
    }
    if (flight.rows > 0) {
      runner->sample(std::span(flight.requests).first(size_t(flight.rows)));
    } else {
      flight.may_run_ahead = false;  // its end is waited for by logits(), which is of the last step
    }
  }

  // The draw behind the first `drafts` drafts of a slice. False: the whole row decides.
  bool request_draw(Active& request, const ScheduledStep& step, const ScheduledSlice& slice,
                    int drafts, TopLogitsRequest& wanted) {
    const Sampler& sampler = request.generation.sampler();
    SampleContext draw_context = request.generation.context();
    draw_context.allowed = {};
    const size_t position = size_t(slice.past + slice.count - slice.drafts + drafts);
    if (sampler.device_draws()) {
      draw_context.unknown = position - draw_context.tokens.size();
    } else if (drafts > 0) {
      const std::span<const Token> drafted = step.tokens_of(slice).last(size_t(slice.drafts));
      context_tokens.assign(draw_context.tokens.begin(), draw_context.tokens.end());
      context_tokens.insert(context_tokens.end(), drafted.begin(), drafted.begin() + drafts);
      draw_context.tokens = context_tokens;
    }
    if (sampler.request(draw_context, workspace, wanted)) return true;
    wanted = {};
    return false;
  }

  // Waits for the oldest step and hands its tokens out.
  void land() {
    Flight flight = std::move(flights.front());
    flights.pop_front();
    std::span<const TopLogits> rows;
    landed_logits = {};
    if (flight.rows > 0) {
      rows = runner->fetch();
    } else {
      runner->logits();  // waits for the step
    }
    const Clock::time_point now = Clock::now();
    StepReport& report = flight.report;
    const Clock::time_point began =
        last_landed ? std::max(flight.launched, *last_landed) : flight.launched;
    report.measured_s = seconds_between(began, now);
    report.began = began;
    report.ended = now;
    last_landed = now;

    std::vector<RequestOutput> made;
    step_rows.clear();
    size_t row = 0;
    for (const ScheduledSlice& slice : flight.step.slices) {
      const size_t first = row;
      row += size_t(slice.logits);
      count(slice, report);
      const auto found = active.find(slice.id);
      if (found == active.end()) continue;  // cancelled or ended while this step was in flight
      Active& request = *found->second;
      report_prompt(request, flight, slice, rows, first);
      if (slice.samples) take_tokens(request, flight, slice, rows, first, now, made);
    }
    if (policy && report.prefill_tokens == 0 && drafter->cost_was_typical()) observe_drafts(flight);
    report.preempted = int(flight.step.preempted.size());
    report.rows = step_rows;
    fill_counts(report);
    observer->on_step(report);
    if (flight.profiled) {
      observer->on_profile({.began = began,
                            .measured_s = report.measured_s,
                            .prefill_sequences = report.prefill_sequences,
                            .decode_sequences = report.decode_sequences,
                            .batch = flight.batch,
                            .operators = profile.entries()});
    }
    count_waiting();
    spare = std::move(flight);
    if (!made.empty()) outputs(std::move(made));
  }

  void count(const ScheduledSlice& slice, StepReport& report) {
    StepRow& row = step_rows.emplace_back();
    row.id = slice.id;
    row.drafts = slice.drafts;
    row.kind = !slice.decodes     ? StepRow::Kind::prefill
               : slice.drafts > 0 ? StepRow::Kind::draft
                                  : StepRow::Kind::decode;
    if (!slice.decodes) row.tokens = slice.count;
    if (slice.decodes) {
      ++report.decode_sequences;
      report.draft_tokens += slice.drafts;
      report.drafted_sequences += slice.drafts > 0 ? 1 : 0;
    } else {
      ++report.prefill_sequences;
      report.prefill_tokens += slice.count;
    }
  }

  // The rows of prompt tokens: the log probability of the token that follows each.
  void report_prompt(Active& request, const Flight& flight, const ScheduledSlice& slice,
                     std::span<const TopLogits> rows, size_t first) {
    const int drawn = slice.samples ? 1 + slice.drafts : 0;
    for (int i = 0; i < slice.logits - drawn; ++i) {
      const TopLogits& top = rows[first + size_t(i)];
      Sampled& sampled = request.prompt_sampled.emplace_back();
      sampled.token = flight.requests[first + size_t(i)].tokens.front();
      if (top.broken) continue;
      sampled.logprob = float(double(top.requested.front()) - top.log_sum);
      for (const Candidate& c : std::span(top.candidates).first(size_t(request.prompt_logprobs))) {
        sampled.top_logprobs.emplace_back(c.token, float(double(c.logit) - top.log_sum));
      }
    }
  }

  // Draws behind each row while the draws equal the drafts.
  void take_tokens(Active& request, Flight& flight, const ScheduledSlice& slice,
                   std::span<const TopLogits> rows, size_t first, Clock::time_point now,
                   std::vector<RequestOutput>& made) {
    first += size_t(slice.logits - 1 - slice.drafts);
    const std::span<const Token> given = flight.step.tokens_of(slice);
    RequestOutput output;
    output.id = request.id;
    tokens.clear();
    std::string error;
    for (int i = 0; i <= slice.drafts; ++i) {
      if (i > 0 && request.generation.has_mask()) request.generation.update_mask();
      Sampled& sampled = output.sampled.emplace_back();
      try {
        draw(request, flight, rows, first + size_t(i), sampled);
      } catch (const std::exception& caught) {
        error = caught.what();
        output.sampled.pop_back();
        break;
      }
      tokens.push_back(sampled.token);
      output.text += request.generation.push(sampled.token);
      if (request.generation.ended()) break;
      if (i == slice.drafts || sampled.token != given[given.size() - size_t(slice.drafts - i)]) {
        break;
      }
      count_accepted(request, i);
    }
    flight.report.generated_tokens += int(tokens.size());
    flight.report.accepted_tokens += std::max(0, int(tokens.size()) - 1);
    if (slice.decodes) {
      step_rows.back().tokens = int(tokens.size());
      step_rows.back().accepted = std::max(0, int(tokens.size()) - 1);
    }
    if (!tokens.empty()) {
      report_times(request, int(tokens.size()), now);
      scheduler->accept(slice, tokens);
    }
    if (!request.reported_cached) {
      output.cached_tokens = request.cached;
      output.prompt_sampled = std::move(request.prompt_sampled);
      request.reported_cached = true;
    }
    if (!error.empty()) {
      request.generation.end(EndReason::failed);
      output.error = error;
    }
    if (const std::optional<EndReason> reason = request.generation.ended()) {
      if (reason == EndReason::failed && output.error.empty()) {
        output.error = "the schema allows more readings of this text than can be followed";
      }
      output.text += request.generation.finish();
      output.end = reason;
      if (reason == EndReason::stop_string) output.stop = request.generation.stop();
      finish(request, *reason);
    }
    made.push_back(std::move(output));
  }

  void draw(const Active& request, const Flight& flight, std::span<const TopLogits> rows,
            size_t row, Sampled& to) {
    const Sampler& sampler = request.generation.sampler();
    const SampleContext draw_context = request.generation.context();
    if (!flight.whole_row[row] &&
        sampler.sample(rows[row], flight.requests[row], draw_context, workspace, to)) {
      return;
    }
    if (!flights.empty()) throw Error("every token is banned: nothing is left to draw from");
    if (landed_logits.empty()) landed_logits = runner->logits();
    const auto vocab = size_t(runner->weights().architecture.vocab);
    sampler.sample(landed_logits.subspan(row * vocab, vocab), draw_context, workspace, to);
  }

  static void count_accepted(Active& request, int position) {
    if (int(request.accepted_at.size()) <= position)
      request.accepted_at.resize(size_t(position) + 1);
    ++request.accepted_at[size_t(position)];
  }

  void report_times(Active& request, int count, Clock::time_point now) {
    if (request.first_token_s == 0) {
      request.first_token_s = seconds_between(request.arrived, now);
      observer->on_first_token(request.first_token_s);
      report_stage(request, RequestEvent::Stage::first_token, now);
    } else {
      observer->on_tokens(count, seconds_between(request.last_tokens, now));
    }
    request.last_tokens = now;
  }

  void report_stage(const Active& request, RequestEvent::Stage stage, Clock::time_point at,
                    EndReason end = EndReason::length) {
    observer->on_request({.id = request.id,
                          .stage = stage,
                          .at = at,
                          .prompt_tokens = int(request.prompt.size()),
                          .cached_tokens = request.cached,
                          .generated_tokens = int(request.generation.generated().size()),
                          .end = end});
  }

  // A step's time depends on its largest number of drafts, which is the policy's choice.
  void observe_drafts(const Flight& flight) {
    int drafts = 0;
    double past = 0;
    for (const ScheduledSlice& slice : flight.step.slices) {
      drafts = std::max(drafts, slice.drafts);
      past += slice.past;
    }
    const int sequences = int(flight.step.slices.size());
    policy->on_step(sequences, drafts, past / sequences,
                    flight.planning_s + flight.report.measured_s);
  }

  // Ends.

  void finish(Active& request, EndReason reason) {
    RequestReport report;
    report.end = reason;
    report.prompt_tokens = int(request.prompt.size());
    report.cached_tokens = request.cached;
    report.generated_tokens = int(request.generation.generated().size());
    report.max_tokens = request.max_tokens;
    report.preemptions = scheduler->preemptions(request.id);
    report.scheduled_s = request.scheduled_s;
    report.first_token_s = request.first_token_s;
    const Clock::time_point now = Clock::now();
    report.end_s = seconds_between(request.arrived, now);
    report.accepted_at = std::move(request.accepted_at);
    observer->on_finished(report);
    report_stage(request, RequestEvent::Stage::ended, now, reason);
    const RequestId id = request.id;
    scheduler->remove(id);
    active.erase(id);
  }

  void end(Active& request, EndReason reason, const std::string& error,
           std::vector<RequestOutput>& to) {
    RequestOutput output;
    output.id = request.id;
    output.end = reason;
    output.error = error;
    to.push_back(std::move(output));
    finish(request, reason);
  }

  void end_all(EndReason reason, const std::string& error) {
    std::vector<std::unique_ptr<Active>> arrived;
    {
      const std::lock_guard lock(mutex);
      arrived.swap(arrivals);
    }
    for (std::unique_ptr<Active>& request : arrived)
      active.emplace(request->id, std::move(request));
    std::vector<RequestOutput> ended;
    while (!active.empty()) end(*active.begin()->second, reason, error, ended);
    if (!ended.empty()) outputs(std::move(ended));
    count_waiting();
  }

  void fill_counts(StepReport& report) const {
    report.running = scheduler->running();
    report.waiting = scheduler->waiting();
    const Scheduler::PageCounts pages = scheduler->pages();
    report.pages_free = pages.free;
    report.pages_cached = pages.cached;
    report.pages_held = pages.held;
  }

  void count_waiting() {
    const std::lock_guard lock(mutex);
    waiting.store(scheduler->waiting(), std::memory_order_relaxed);
    working.store(!active.empty() || !arrivals.empty(), std::memory_order_relaxed);
  }

  // Without requests every page is free or cached. A lost page is a fault that must not stay
  // unnoticed.
  void check_idle_pool() const {
    scheduler->check_pages();
    if (scheduler->pages().held != 0) throw Error("pages are held, but no request is there");
  }

  std::unique_ptr<Runner> runner;
  Outputs outputs;
  ServingObserver nobody;
  ServingObserver* observer;
  int context, max_waiting, max_drafts;
  std::function<void(const std::string&)> on_failure;
  std::function<std::string()> lost;

  PagePool pool;
  std::optional<StepPredictor> predictor, draft_predictor;
  std::optional<DraftPolicy> policy;
  std::unique_ptr<Drafter> drafter;
  std::optional<Scheduler> scheduler;
  std::unordered_map<RequestId, std::unique_ptr<Active>> active;
  std::deque<Flight> flights;
  Flight spare;  // a landed one, for its memory
  std::optional<Clock::time_point> last_landed;
  std::vector<Slice> slices;
  std::span<const float> landed_logits;  // of the step that is landing, where a draw needed them
  std::vector<Sequences> described;
  std::vector<StepRow> step_rows;  // of the step that is landing
  Profile profile;                 // of the last step whose operators were timed
  std::vector<Token> tokens, context_tokens;
  SamplerWorkspace workspace;

  // Shared with other threads.
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::unique_ptr<Active>> arrivals;
  std::vector<RequestId> cancels;
  bool stopping = false;
  std::optional<std::string> failed;
  std::atomic<int> waiting = 0;
  std::atomic<bool> working = false;
  std::atomic<bool> look = false;  // the observer wants between_steps()
  std::atomic<RequestId> last_id = 0;

  std::thread thread;  // last: it uses everything above
};

ServingEngine::ServingEngine(std::unique_ptr<Runner> runner, ServingOptions options,
                             Outputs outputs, ServingObserver* observer)
    : impl_(std::make_unique<Impl>(std::move(runner), std::move(options), std::move(outputs),
                                   observer)) {}
ServingEngine::~ServingEngine() = default;

const Runner& ServingEngine::runner() const { return *impl_->runner; }
int ServingEngine::max_context() const { return impl_->context; }
int ServingEngine::max_waiting() const { return impl_->max_waiting; }
int ServingEngine::max_drafts() const { return impl_->max_drafts; }
RequestId ServingEngine::new_id() { return ++impl_->last_id; }

bool ServingEngine::submit(ServingRequest request) {
  const int prompt = static_cast<int>(request.prompt.size());
  if (prompt == 0) throw OptionError("prompt", "the prompt is empty: there is nothing to continue");
  if (prompt >= impl_->context) {
    throw OptionError("prompt", fmt::format("the prompt's {} tokens leave no room in a context of "
                                            "{} tokens",
                                            prompt, impl_->context));
  }
  const int vocab = impl_->runner->weights().architecture.vocab;
  for (const Token token : request.prompt) {
    if (token >= 0 && token < vocab) continue;
    throw OptionError("prompt",
                      fmt::format("token {} is outside the vocabulary of {}", token, vocab));
  }
  if (request.generate.max_tokens < 1) {
    throw OptionError("max_tokens", "max_tokens must be at least 1");
  }
  request.generate.max_tokens = std::min(request.generate.max_tokens, impl_->context - prompt);
  request.generate.min_tokens =
      std::clamp(request.generate.min_tokens, 0, request.generate.max_tokens);
  if (request.prompt_logprobs > kMaxCandidates) {
    throw OptionError("prompt_logprobs", fmt::format("at most {}", kMaxCandidates));
  }
  if (request.max_drafts.value_or(0) > impl_->max_drafts) {
    throw OptionError("max_drafts", fmt::format("at most {} drafts here", impl_->max_drafts));
  }
  auto active = std::make_unique<Impl::Active>(impl_->runner->weights(), std::move(request));
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->failed) throw Error("the engine has stopped: {}", *impl_->failed);
    const int queued = impl_->waiting.load(std::memory_order_relaxed) + int(impl_->arrivals.size());
    if (queued >= impl_->max_waiting) return false;
    impl_->arrivals.push_back(std::move(active));
    impl_->working.store(true, std::memory_order_relaxed);
  }
  impl_->wake.notify_one();
  return true;
}

void ServingEngine::cancel(RequestId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->failed) return;  // nobody would take it from the list
    impl_->cancels.push_back(id);
  }
  impl_->wake.notify_one();
}

void ServingEngine::request_look() {
  {
    const std::lock_guard lock(impl_->mutex);  // so that a loop that is about to wait sees it
    impl_->look = true;
  }
  impl_->wake.notify_one();
}

bool ServingEngine::idle() const { return !impl_->working.load(std::memory_order_relaxed); }

std::optional<std::string> ServingEngine::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failed;
}

}  // namespace ridge
