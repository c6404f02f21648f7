// Reports of the serving engine: one a step, one for each finished request, and what the live
// stream shows beyond them.
#pragma once

#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "engine/generate/generation.h"
#include "engine/runner/profile.h"
#include "roofline/roofline.h"
#include "serving/request.h"
#include "step/step.h"

namespace ridge {

class Scheduler;  // serving/scheduler.h

// What the engine's reports call now: the steady clock, or what a test puts in its place.
struct ServingClock {
  using duration = std::chrono::steady_clock::duration;
  using time_point = std::chrono::steady_clock::time_point;
  using Source = time_point (*)();

  static time_point now() {
    const Source source = source_.load(std::memory_order_relaxed);
    return source == nullptr ? std::chrono::steady_clock::now() : source();
  }
  static void replace(Source source) { source_ = source; }  // null: the steady clock again

 private:
  static inline std::atomic<Source> source_ = nullptr;
};

inline double seconds_between(ServingClock::time_point from, ServingClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// One sequence's part of a step.
struct StepRow {
  enum class Kind : uint8_t { prefill, decode, draft };
  RequestId id = 0;
  Kind kind = Kind::decode;
  int tokens = 0;    // prefill: computed of the prompt; otherwise: generated
  int accepted = 0;  // draft: of these, drafts
  int drafts = 0;    // draft: verified
};

struct StepReport {
  double measured_s = 0;   // from the step's launch, or the end of the step before, to its tokens
  double predicted_s = 0;  // 0: no prediction
  double roof_s = 0;       // 0: no prediction
  double host_gap_s = 0;   // between the end of the step before and this launch; 0: overlapped
  double flops = 0, bytes = 0;  // that the step had to do and to move; 0: no prediction
  Wall wall = Wall::memory;
  int prefill_tokens = 0;     // prompt tokens computed
  int prefill_sequences = 0;  // sequences that these are of
  int decode_sequences = 0;   // sequences that continued
  int drafted_sequences = 0;  // of these, with drafts
  int draft_tokens = 0;       // proposed, of all sequences
  int accepted_tokens = 0;    // of these
  int generated_tokens = 0;
  int preempted = 0;  // sequences preempted to make room
  // After the step.
  int running = 0, waiting = 0;
  int pages_free = 0, pages_cached = 0, pages_held = 0;

  ServingClock::time_point began = {}, ended = {};  // apart by measured_s
  std::span<const StepRow> rows = {};               // valid during the call
};

// A request has reached a stage of its life.
struct RequestEvent {
  enum class Stage : uint8_t { arrived, admitted, preempted, first_token, ended };
  RequestId id = 0;
  Stage stage = Stage::arrived;
  ServingClock::time_point at = {};
  int prompt_tokens = 0;
  int cached_tokens = 0;              // from `admitted` on
  int generated_tokens = 0;           // so far
  EndReason end = EndReason::length;  // of `ended`
};

// A step whose operators were timed. The spans are valid during the call.
struct StepProfile {
  ServingClock::time_point began = {};
  double measured_s = 0;
  int prefill_sequences = 0, decode_sequences = 0;
  std::span<const Sequences> batch = {};           // what the step computed
  std::span<const Profile::Entry> operators = {};  // empty: the runner cannot time them cheaply
};

struct RequestReport {
  EndReason end = EndReason::length;
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, max_tokens = 0;
  int preemptions = 0;
  // Seconds since arrival; 0 where the request ended before.
  double scheduled_s = 0, first_token_s = 0, end_s = 0;
  std::vector<int> accepted_at = {};  // by draft position: how many drafts were accepted there
};

// Called on the engine's thread: implementations must be quick and must not throw.
class ServingObserver {
 public:
  virtual ~ServingObserver() = default;
  // A report with measured_s == 0 is of no step: requests ended between steps, and only what holds
  // "after the step" counts.
  virtual void on_step(const StepReport&) {}
  // A step gave a running stream `tokens` tokens, `seconds` after the ones before. The first tokens
  // of a request are on_first_token(), with the seconds since its arrival.
  virtual void on_tokens(int /*tokens*/, double /*seconds*/) {}
  virtual void on_first_token(double /*seconds*/) {}
  virtual void on_prefix_lookup(int /*prompt_tokens*/, int /*cached_tokens*/) {}
  virtual void on_finished(const RequestReport&) {}
  virtual void on_request(const RequestEvent&) {}
  // Answers ServingEngine::request_look(): every step planned so far has been launched.
  virtual void between_steps(const Scheduler&) {}
  // Asked before each launch of a step with a prediction; true: its operators are timed, and
  // on_profile() follows.
  virtual bool wants_profile() { return false; }
  virtual void on_profile(const StepProfile&) {}
};

}  // namespace ridge
