// The requests that the engine works on: each between its submission and its end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/generate/generation.h"
#include "serving/observer.h"
#include "serving/request.h"

namespace ridge {

class EngineReports;  // serving/engine_reports.h
class Scheduler;      // serving/scheduler.h

struct ActiveRequest {
  ActiveRequest(const Weights& weights, ServingRequest&& from);  // arrives now

  RequestId id;
  int priority, prompt_logprobs;
  std::optional<int> max_drafts;
  std::string salt;
  int max_tokens;
  std::vector<Token> prompt;
  Generation generation;
  ServingClock::time_point arrived, last_tokens;
  int cached = 0;                             // prompt tokens found in the prefix cache
  double scheduled_s = 0, first_token_s = 0;  // since its arrival; 0: not yet
  bool has_output = false;              // its first output was made, which carries what comes once
  std::vector<Sampled> prompt_sampled;  // for the first output
  std::vector<int> accepted_at;         // by draft position: drafts accepted there
};

// Every request of the table is the scheduler's too. Used by the engine's thread only.
class ActiveRequests {
 public:
  // Both outlive the table.
  ActiveRequests(Scheduler& scheduler, EngineReports& reports)
      : scheduler_(&scheduler), reports_(&reports) {}

  // `max_drafts`: of a request that names no bound of its own.
  void add(std::unique_ptr<ActiveRequest> request, int max_drafts);
  ActiveRequest& at(RequestId id) { return *requests_.at(id); }
  ActiveRequest* find(RequestId id);  // null: ended, or never known
  bool empty() const { return requests_.empty(); }

  // Reports the request's end and removes it. Its last output is the caller's.
  void finish(ActiveRequest& request, EndReason reason);
  // The same, with a last output without tokens. Of a request that was never added too.
  void end(ActiveRequest& request, EndReason reason, const std::string& error,
           std::vector<RequestOutput>& to);
  void end_all(EndReason reason, const std::string& error, std::vector<RequestOutput>& to);

 private:
  Scheduler* scheduler_;
  EngineReports* reports_;
  std::unordered_map<RequestId, std::unique_ptr<ActiveRequest>> requests_;
};

}  // namespace ridge
