// What one piece of work may cost: steps, time, and whether anybody still waits for its result.
// Whatever interprets what strangers write (schemas, templates, expressions, tokenizers) spends a
// step for each unit of its work, and states in its header how many it may spend.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/error.h"

namespace ridge {

// Whether nobody waits for the result any more. Called often, where it says so from several
// threads.
using Cancelled = std::function<bool()>;

// The work was given up: it would have cost too much, or nobody waits for it any more.
class WorkLimitError : public Error {
 public:
  enum class Reason : uint8_t { steps, time, cancelled };
  WorkLimitError(Reason reason, const std::string& message) : Error(message), why_(reason) {}
  Reason reason() const { return why_; }

 private:
  Reason why_;
};

class WorkLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kNoTimeLimit = Clock::duration::max();

  // `subject` begins the error's message. `cancelled` may be called often, on the thread that
  // works.
  explicit WorkLimit(std::string subject, uint64_t most_steps,
                     Clock::duration most_time = kNoTimeLimit, Cancelled cancelled = {})
      : subject_(std::move(subject)),
        most_steps_(most_steps),
        most_time_(most_time),
        until_(most_time == kNoTimeLimit ? Clock::time_point::max() : Clock::now() + most_time),
        cancelled_(std::move(cancelled)) {
    plan_look();
  }

  // Throws WorkLimitError where a limit is passed.
  void spend(uint64_t steps = 1) {
    spent_ += steps;
    if (spent_ > next_look_) look();
  }
  uint64_t spent() const { return spent_; }

 private:
  // Between two looks at the clock and the flag.
  static constexpr uint64_t kStepsBetweenLooks = 4096;

  void plan_look() { next_look_ = std::min(most_steps_, spent_ + kStepsBetweenLooks); }
  void look() {
    using Reason = WorkLimitError::Reason;
    if (spent_ > most_steps_) {
      throw WorkLimitError(Reason::steps,
                           fmt::format("{}: more than {} steps of work", subject_, most_steps_));
    }
    if (cancelled_ && cancelled_()) {
      throw WorkLimitError(Reason::cancelled, subject_ + ": the client has gone");
    }
    if (until_ != Clock::time_point::max() && Clock::now() > until_) {
      const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(most_time_).count();
      throw WorkLimitError(Reason::time,
                           fmt::format("{}: more than {} ms of work", subject_, most));
    }
    plan_look();
  }

  std::string subject_;
  uint64_t most_steps_, spent_ = 0, next_look_ = 0;
  Clock::duration most_time_;
  Clock::time_point until_;
  Cancelled cancelled_;
};

}  // namespace ridge
