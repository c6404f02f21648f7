#include "plan/service.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ridge {
namespace {

constexpr double kNoTarget = std::numeric_limits<double>::infinity();

PercentileInterval tail_of(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return percentile_interval(values, share);
}

}  // namespace

bool LatencyTargets::met_by(const ServedRequest& request) const {
  return request.served && request.ttft_s() <= ttft_s.value_or(kNoTarget) &&
         request.itl_s() <= itl_s.value_or(kNoTarget) &&
         request.e2e_s() <= e2e_s.value_or(kNoTarget);
}

std::string ServiceSummary::missed(const LatencyTargets& targets) const {
  if (double(refused) > (1 - targets.percentile) * double(requests)) return "length";
  if (ttft_tail.value > targets.ttft_s.value_or(kNoTarget)) return "TTFT";
  if (itl_tail.value > targets.itl_s.value_or(kNoTarget)) return "ITL";
  if (e2e_tail.value > targets.e2e_s.value_or(kNoTarget)) return "E2E";
  return {};
}

double ServiceSummary::worst_ratio(const LatencyTargets& targets) const {
  return std::max({ttft_tail.value / targets.ttft_s.value_or(kNoTarget),
                   itl_tail.value / targets.itl_s.value_or(kNoTarget),
                   e2e_tail.value / targets.e2e_s.value_or(kNoTarget)});
}

ServiceSummary summarize_service(std::span<const ServedRequest> requests,
                                 const LatencyTargets& targets, double warm_up_s) {
  ServiceSummary s;
  std::vector<double> ttft, itl, e2e;
  double first = kNoTarget, last = 0, prompts = 0, outputs = 0, cached = 0;
  size_t good = 0;
  for (const ServedRequest& request : requests) {
    // A refused request has no place on the clock of a closed loop: it always counts.
    if (request.served && request.arrival_s < warm_up_s) continue;
    ++s.requests;
    if (!request.served) {
      ++s.refused;
      continue;
    }
    good += targets.met_by(request) ? 1 : 0;
    first = std::min(first, request.arrival_s);
    last = std::max(last, request.finish_s);
    prompts += request.prompt;
    outputs += request.output;
    cached += request.cached_tokens;
    s.preemptions += request.preemptions;
    ttft.push_back(request.ttft_s());
    e2e.push_back(request.e2e_s());
    if (request.output > 1) itl.push_back(request.itl_s());
  }
  if (ttft.empty()) return s;
  s.ttft_tail = tail_of(ttft, targets.percentile);
  s.itl_tail = tail_of(itl, targets.percentile);
  s.e2e_tail = tail_of(e2e, targets.percentile);
  s.goodput = double(good) / double(s.requests);
  s.duration_s = last - first;
  if (s.duration_s > 0) {
    s.requests_per_s = double(ttft.size()) / s.duration_s;
    s.output_tokens_per_s = outputs / s.duration_s;
    s.prompt_tokens_per_s = prompts / s.duration_s;
  }
  s.cached_share = cached / prompts;
  s.ttft = percentiles_of(std::move(ttft));
  s.itl = percentiles_of(std::move(itl));
  s.e2e = percentiles_of(std::move(e2e));
  return s;
}

}  // namespace ridge
