// The engine's loop, on one thread: events from other threads, a step launched, a step landed.
// Where the runner queues steps, the next one is planned and launched while the device runs the
// current one.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv/pages.h"
#include "serving/active_requests.h"
#include "serving/engine_inbox.h"
#include "serving/engine_reports.h"
#include "serving/scheduler.h"
#include "serving/serving_engine.h"
#include "serving/speculation.h"
#include "serving/step_in_flight.h"
#include "serving/step_lander.h"
#include "serving/step_launcher.h"
#include "serving/step_pace.h"
#include "serving/step_predictor.h"
#include "serving/step_sampler.h"

namespace ridge {

class ServingLoop {
 public:
  // `inbox` and `observer` (may be null) outlive the loop.
  ServingLoop(std::unique_ptr<Runner> runner, ServingOptions options,
              ServingEngine::Outputs outputs, ServingObserver* observer, EngineInbox& inbox);
  ServingLoop(const ServingLoop&) = delete;  // its parts refer to each other

  const Runner& runner() const { return *runner_; }
  // Runs until the inbox is stopped or something fails. Every request has ended by then.
  void run();

 private:
  bool take_events();
  void advance();
  enum class Launch { done, nothing_to_run, held };
  Launch launch();
  void land();
  void wait_for_pace(ServingClock::time_point began);
  bool held() const { return pace_ && pace_->holds(); }
  void end_all(EndReason reason, const std::string& error);
  void update_load();
  void check_idle_pool() const;

  std::unique_ptr<Runner> runner_;
  ServingEngine::Outputs outputs_;
  int max_drafts_;
  std::function<void(const std::string&)> on_failure_;
  std::function<std::string()> lost_;
  EngineInbox* inbox_;
  std::shared_ptr<StepPace> pace_;  // null: steps run as they come
  std::optional<StepPace::Watch> pace_watch_;

  EngineReports reports_;
  PagePool pool_;
  std::optional<StepPredictor> predictor_;
  std::unique_ptr<Speculation> speculation_;  // null: no drafts
  Scheduler scheduler_;
  ActiveRequests requests_;
  StepSampler sampler_;
  StepLauncher launcher_;
  StepLander lander_;

  std::deque<StepInFlight> in_flight_;                   // oldest first
  StepInFlight spare_;                                   // one that landed, for its memory
  std::optional<ServingClock::time_point> last_landed_;  // none: the engine was idle since
};

}  // namespace ridge
