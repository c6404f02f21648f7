#include <cmath>

#include "plan/json.h"

namespace ridge {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json traffic_json(const PlanTask& task) {
  double prompt = 0, output = 0;
  for (const TraceRow& row : task.traffic.rows) {
    prompt += row.prompt_tokens;
    output += row.output_tokens;
  }
  const double count = double(task.traffic.rows.size());
  return {{"requests", task.traffic.rows.size()},
          {"failed", task.traffic.failed},
          {"duration_s", task.traffic.duration_s()},
          {"requests_per_s", task.traffic.requests_per_s()},
          {"clients", task.clients > 0 ? Json(task.clients) : Json(nullptr)},
          {"mean_prompt", prompt / count},
          {"mean_output", output / count}};
}

std::optional<double> dollars_per_mtok(const PlanOutcome& outcome) {
  if (!outcome.dollars_per_hour || outcome.service.output_tokens_per_s <= 0) return std::nullopt;
  return *outcome.dollars_per_hour / 3600 / outcome.service.output_tokens_per_s * 1e6;
}

std::optional<double> joules_per_token(const PlanOutcome& outcome) {
  const std::optional<double> watts = outcome.watts();
  if (!watts || outcome.service.output_tokens_per_s <= 0) return std::nullopt;
  return *watts / outcome.service.output_tokens_per_s;
}

}  // namespace

Json plan_rows(const PlanTask& task, const PlanReport& report) {
  Json rows = Json::array();
  for (const PlanOutcome& o : report.outcomes) {
    const bool ran = o.machines > 0;
    const auto when = [&](double value) { return ran ? Json(value) : Json(nullptr); };
    rows.push_back(
        {{"model", o.request.model->name},
         {"machine", o.request.system.name()},
         {"stack", o.request.stack.name},
         {"tp", o.request.plan.tp},
         {"pp", o.request.plan.pp},
         {"ep", o.request.plan.ep},
         {"weights", o.request.plan.weights ? Json(o.request.plan.weights->name) : Json(nullptr)},
         {"kv", o.request.plan.kv ? Json(o.request.plan.kv->name) : Json(nullptr)},
         {"machines", o.machines},
         {"devices", o.devices()},
         {"replicas", o.replicas()},
         {"prefill_replicas", o.prefill_replicas},
         {"max_num_seqs", o.replica.policy.max_sequences},
         {"max_num_batched_tokens", o.replica.policy.max_tokens},
         {"kv_blocks", o.replica.pages},
         {"meets", o.meets},
         {"on_front", o.on_front},
         {"dollars_per_hour", or_null(o.dollars_per_hour)},
         {"dollars_per_mtok", or_null(dollars_per_mtok(o))},
         {"watts", ran ? or_null(o.watts()) : Json(nullptr)},
         {"joules_per_token", or_null(joules_per_token(o))},
         {"ttft_s", when(o.service.ttft_tail.value)},
         {"itl_s", when(o.service.itl_tail.value)},
         {"e2e_s", when(o.service.e2e_tail.value)},
         {"goodput", when(o.service.goodput)},
         {"output_tokens_per_s", when(o.service.output_tokens_per_s)},
         {"percentile", 100 * task.targets.percentile},
         {"reason", o.reason}});
  }
  return rows;
}

Json plan_answer_json(const PlanTask& task, const PlanAnswer& answer) {
  Json json{{"traffic", traffic_json(task)},
            {"headroom", task.headroom},
            {"candidates", plan_rows(task, answer.report)}};
  const PlanOutcome* best = answer.report.best();
  json["best"] = nullptr;
  if (!best) return json;
  Json changes = Json::array(), curve = Json::array(), prices = Json::array();
  for (const Sensitivity& change : answer.changes) {
    changes.push_back({{"change", change.change},
                       {"machines", change.machines > 0 ? Json(change.machines) : Json(nullptr)},
                       {"dollars_per_hour", or_null(change.dollars_per_hour)},
                       {"service", service_json(change.service, task.targets)}});
  }
  for (const CapacityInterval& interval : answer.curve) {
    curve.push_back({{"begin_s", interval.begin_s},
                     {"end_s", interval.end_s},
                     {"requests_per_s", interval.requests_per_s},
                     {"needed", interval.needed},
                     {"up", interval.up},
                     {"met", interval.met}});
  }
  for (const PlanOutcome& other : answer.report.outcomes) {
    if (&other == best || !other.meets) continue;
    prices.push_back({{"machine", other.request.system.name()},
                      {"plan", plan_json(other.request.plan)},
                      {"dollars_per_device_hour", or_null(break_even_price(*best, other))}});
  }
  json["best"] = {{"plan", plan_json(best->request.plan)},
                  {"policy", policy_json(best->replica.policy, best->replica.pages)},
                  {"service", service_json(best->service, task.targets)},
                  {"breaks", nullptr},
                  {"sensitivity", std::move(changes)},
                  {"break_even_prices", std::move(prices)},
                  {"capacity", std::move(curve)},
                  {"launch", launch_command(best->request, best->replica)}};
  if (answer.breaks) {
    json["best"]["breaks"] = {{"factor", answer.breaks->factor},
                              {"found", answer.breaks->found},
                              {"target", answer.breaks->target},
                              {"wall", answer.breaks->wall}};
  }
  return json;
}

}  // namespace ridge
