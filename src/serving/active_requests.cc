#include "serving/active_requests.h"

#include "serving/engine_reports.h"
#include "serving/scheduler.h"

namespace ridge {

ActiveRequest::ActiveRequest(const Weights& weights, ServingRequest&& from)
    : id(from.id),
      priority(from.priority),
      prompt_logprobs(from.prompt_logprobs),
      max_drafts(from.max_drafts),
      salt(std::move(from.cache_salt)),
      max_tokens(from.generate.max_tokens),
      prompt(std::move(from.prompt)),
      generation(weights, from.generate, {}, prompt, std::move(from.grammar)),
      arrived(ServingClock::now()) {}

void ActiveRequests::add(std::unique_ptr<ActiveRequest> request, int max_drafts) {
  const RequestId id = request->id;
  Arrival arrival;
  arrival.id = id;
  arrival.prompt = request->prompt;
  arrival.max_length = int(request->prompt.size()) + request->max_tokens;
  arrival.priority = request->priority;
  arrival.cache_salt = request->salt;
  arrival.all_prompt_rows = request->prompt_logprobs != kNoLogprobs;
  arrival.max_drafts = request->max_drafts.value_or(max_drafts);
  reports_->on_stage(*request, RequestEvent::Stage::arrived, request->arrived);
  scheduler_->add(std::move(arrival));
  requests_.emplace(id, std::move(request));
}

ActiveRequest* ActiveRequests::find(RequestId id) {
  const auto found = requests_.find(id);
  return found != requests_.end() ? found->second.get() : nullptr;
}

void ActiveRequests::finish(ActiveRequest& request, EndReason reason) {
  const RequestId id = request.id;
  reports_->on_end(request, reason, scheduler_->preemptions(id));
  scheduler_->remove(id);
  requests_.erase(id);
}

void ActiveRequests::end(ActiveRequest& request, EndReason reason, const std::string& error,
                         std::vector<RequestOutput>& to) {
  RequestOutput output;
  output.id = request.id;
  output.end = reason;
  output.error = error;
  to.push_back(std::move(output));
  finish(request, reason);
}

void ActiveRequests::end_all(EndReason reason, const std::string& error,
                             std::vector<RequestOutput>& to) {
  while (!requests_.empty()) end(*requests_.begin()->second, reason, error, to);
}

}  // namespace ridge
