// Many requests on one runner, as other threads see it: submit, cancel, outputs. One thread of the
// engine's own (serving_loop.h) takes requests from a queue, lets the scheduler compose steps and
// runs them. Tokenizing, JSON and sockets are the callers' work, on other threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runner/runner.h"
#include "roofline/stack.h"
#include "serving/observer.h"
#include "serving/request.h"
#include "serving/step_pace.h"

namespace ridge {

struct ServingOptions {
  int max_context = 0;            // tokens of one sequence; 0: the model's own limit
  int max_waiting = 1024;         // requests in the queue; a further one is refused
  int max_drafts = 0;             // drafts of a sequence in one step; 0: no speculation
  std::unique_ptr<Runner> draft;  // drafts come from this model; null: from the sequence's own text
  bool prefix_cache = true;
  // Preempts a running sequence every this many steps, for tests; 0: never.
  int preempt_every = 0;
  // Holds or slows the steps, for tests; several engines may share it. Null: nothing does.
  std::shared_ptr<StepPace> pace;
  // Looked at while the engine is idle: why the runner could not go on ("rank 1 was killed"), upon
  // which the engine fails; "": it could. Empty: nothing is looked at.
  std::function<std::string()> lost;
  // Called once, on the engine's thread, if it fails: every request has ended by then.
  std::function<void(const std::string& error)> on_failure;
  // What predictions assume; where either is missing, steps carry no prediction.
  std::optional<System> system;
  std::optional<Stack> stack;
};

class ServingEngine {
 public:
  // `outputs` is called on the engine's thread, once per step, with what the step gave every
  // request it concerned. It must return quickly and must not throw.
  using Outputs = std::function<void(std::vector<RequestOutput>&&)>;

  // `observer` may be null and must outlive the engine, as must whatever `outputs` refers to.
  ServingEngine(std::unique_ptr<Runner> runner, ServingOptions options, Outputs outputs,
                ServingObserver* observer = nullptr);
  ~ServingEngine();  // ends every request (EndReason::cancelled) and the thread

  const Runner& runner() const;
  int max_context() const;  // prompt and generated tokens of one request together
  int max_waiting() const;
  int max_drafts() const;  // of a sequence in one step

  // All of these may be called from any thread.
  RequestId new_id();
  // Throws OptionError where the request can never run: an empty or too long prompt, an option out
  // of range. False where the queue is full. Its outputs may come before this returns.
  bool submit(ServingRequest request);
  // The request ends with EndReason::cancelled before the next step begins, unless it has ended
  // already. An unknown id is ignored.
  void cancel(RequestId id);
  bool idle() const;  // no request waits or runs
  // Has the observer's between_steps() called once before the next step, or now if none runs.
  void request_look();
  // The loop's thread died: the message. Requests have ended with EndReason::failed.
  std::optional<std::string> failure() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
