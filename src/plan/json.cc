#include "plan/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ridge {
namespace {

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json latency_json(const Percentiles& p, const PercentileInterval& tail) {
  return {{"mean", p.mean},
          {"p50", p.p50},
          {"p90", p.p90},
          {"p95", p.p95},
          {"p99", p.p99},
          {"max", p.max},
          {"tail", {{"value", tail.value}, {"low", tail.low}, {"high", finite(tail.high)}}}};
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

Json plan_json(const Plan& plan) {
  return {{"tp", plan.tp},
          {"pp", plan.pp},
          {"dp", plan.dp},
          {"ep", plan.ep},
          {"weights", plan.weights ? Json(plan.weights->name) : Json(nullptr)},
          {"kv", plan.kv ? Json(plan.kv->name) : Json(nullptr)}};
}

Json policy_json(const ServingPolicy& policy, int pages) {
  return {{"max_num_batched_tokens", policy.max_tokens},
          {"max_num_seqs", policy.max_sequences},
          {"block_size", policy.page_tokens},
          {"kv_blocks", pages},
          {"prefix_cache", policy.prefix_cache},
          {"chunked_prefill", policy.chunked}};
}

Json service_json(const ServiceSummary& s, const LatencyTargets& targets) {
  return {{"requests", s.requests},
          {"refused", s.refused},
          {"duration_s", s.duration_s},
          {"requests_per_s", s.requests_per_s},
          {"output_tokens_per_s", s.output_tokens_per_s},
          {"prompt_tokens_per_s", s.prompt_tokens_per_s},
          {"cached_share", s.cached_share},
          {"goodput", targets.any() ? Json(s.goodput) : Json(nullptr)},
          {"percentile", 100 * targets.percentile},
          {"ttft_s", latency_json(s.ttft, s.ttft_tail)},
          {"itl_s", latency_json(s.itl, s.itl_tail)},
          {"e2e_s", latency_json(s.e2e, s.e2e_tail)},
          {"targets",
           {{"ttft_s", optional_json(targets.ttft_s)},
            {"itl_s", optional_json(targets.itl_s)},
            {"e2e_s", optional_json(targets.e2e_s)}}}};
}

Json simulation_json(const Request& request, const Replica& replica, const FleetRun& run,
                     const ServiceSummary& service, const LatencyTargets& targets) {
  Json json{{"model", request.model->name},
            {"machine", request.system.name()},
            {"stack", request.stack.name},
            {"plan", plan_json(request.plan)},
            {"policy", policy_json(replica.policy, replica.pages)}};
  json.update(service_json(service, targets));
  json.update(Json{{"steps", run.total.steps},
                   {"busy_s", run.total.busy_s},
                   {"mean_running", run.total.mean_running},
                   {"max_waiting", run.total.max_waiting},
                   {"peak_kv_share", run.total.peak_kv_share},
                   {"preemptions", run.total.preemptions}});
  return json;
}

std::string requests_csv(const Trace& traffic, std::span<const ServedRequest> requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return traffic.rows[a].index < traffic.rows[b].index; });
  std::string text =
      "request,arrival_s,scheduled_s,first_token_s,finish_s,prompt_tokens,output_tokens,"
      "cached_tokens,preemptions,replica\n";
  const auto out = std::back_inserter(text);
  for (const size_t i : order) {
    const ServedRequest& r = requests[i];
    fmt::format_to(out, "{},{:.6f},", traffic.rows[i].index, r.arrival_s);
    if (r.served) {
      fmt::format_to(out, "{:.6f},{:.6f},{:.6f}", r.scheduled_s, r.first_token_s, r.finish_s);
    } else {
      text += ",,";
    }
    fmt::format_to(out, ",{},{},{},{},{}\n", r.prompt, r.output, r.cached_tokens, r.preemptions,
                   r.replica);
  }
  return text;
}

}  // namespace ridge
