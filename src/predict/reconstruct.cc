// From what was seen to the run that was seen. Batch, step time and throughput hang together: two
// give the third.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "predict/diagnosis.h"

namespace ridge {
namespace {

constexpr double kMostBatch = 65536;

double throughput(const Request& request, double batch) {
  Request r = request;
  r.batch = batch;
  return predict(r).tokens_per_s;
}

// The smallest batch that is predicted to yield this throughput.
double batch_that_yields(const Request& request, double tokens_per_s) {
  double batch = 1;
  while (batch < kMostBatch && throughput(request, batch) < tokens_per_s) batch *= 2;
  if (batch == 1) return 1;
  double low = batch / 2, high = batch;
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    (throughput(request, middle) < tokens_per_s ? low : high) = middle;
  }
  return high;
}

double find_batch(Diagnosis& d) {
  const Observation& seen = d.seen;
  // Little's law: sequences at once = rate x time each takes per token.
  const bool derived = seen.tokens_per_s && seen.itl_s;
  const double running = derived ? *seen.tokens_per_s * *seen.itl_s : 0;
  if (seen.batch) {
    if (derived && running * kDisagree < *seen.batch) {
      d.contradicts(
          fmt::format("tok/s x inter-token latency: only {} of the {:.0f} sequences decode",
                      pretty_number(running), *seen.batch));
    }
    return *seen.batch;
  }
  if (derived) {
    const double batch = std::max(1.0, std::round(running));
    d.supports(fmt::format("tok/s x inter-token latency: {:.0f} sequences decode at once", batch));
    return batch;
  }
  if (!seen.tokens_per_s) return 1;
  const double batch = batch_that_yields(d.request, *seen.tokens_per_s);
  d.supports(fmt::format("batch not given: {} tok/s is the throughput of a batch of about {:.0f}",
                         pretty_number(*seen.tokens_per_s), batch));
  return batch;
}

// Seconds of one step; for prefill, of the whole prompt.
double find_step(const Diagnosis& d) {
  const Observation& seen = d.seen;
  const double per_step = tokens_per_step(d.request.plan);
  if (seen.itl_s) return *seen.itl_s * per_step;
  if (seen.tokens_per_s) return d.result.batch * per_step / *seen.tokens_per_s;
  return *seen.ttft_s;
}

// The smallest batch within 10 % of the best throughput among those that fit.
void find_useful_batch(Diagnosis& d) {
  const MemoryFit& memory = d.result.prediction.memory;
  const double most = std::min(4096.0, memory.capacity ? memory.max_batch : 256.0);
  double best = 0;
  std::vector<std::pair<double, double>> curve;
  for (double batch = 1; batch <= most; batch *= 2) {
    curve.emplace_back(batch, throughput(d.request, batch));
    best = std::max(best, curve.back().second);
  }
  for (const auto& [batch, rate] : curve) {
    if (rate < 0.9 * best) continue;
    d.result.useful_batch = batch;
    d.result.useful_tokens_per_s = rate;
    return;
  }
}

// The endpoint that was seen, as predicted. Its clients are the sequences that decode.
EndpointEstimate expected_endpoint(const Diagnosis& d, EndpointParts& parts) {
  Load load;
  load.clients = d.result.batch;
  load.prompt = d.request.prompt;
  load.output = *d.seen.output;
  parts = endpoint_parts(d.request, load);
  return estimate_endpoint(parts, host_costs(d.request.stack, *d.request.model), load);
}

// Between a user's tokens run prompts of others, too. What they cost is no part of a decode step.
void take_off_prompts(Diagnosis& d) {
  Explanation& x = d.result;
  EndpointParts parts;
  const EndpointEstimate e = expected_endpoint(d, parts);
  const HostCosts& host = host_costs(d.request.stack, *d.request.model);
  const double prompt =
      host.prompt * (parts.prompt_s + host.prompt_experts * parts.prompt_experts_s);
  const double prompts_s = (parts.batch - 1) / *d.seen.output * prompt;
  if (prompts_s <= 0 || prompts_s >= 0.9 * x.step_s) return;
  d.supports(
      fmt::format("of {} per token, {} are prompts of other requests; an endpoint with {:.0f} "
                  "clients is expected at {} per token, first token {}",
                  pretty_time(x.step_s), pretty_time(prompts_s), x.batch, pretty_time(e.tpot_s),
                  pretty_time(e.ttft_s)));
  x.step_s -= prompts_s;
}

}  // namespace

void reconstruct(Diagnosis& d) {
  Explanation& x = d.result;
  x.batch = d.request.batch = find_batch(d);
  x.prediction = predict(d.request);
  x.step_s = find_step(d);
  if (d.seen.output && d.phase() == Phase::decode && d.seen.itl_s) take_off_prompts(d);
  if (d.seen.tokens_per_s) {
    x.effective_batch =
        *d.seen.tokens_per_s * x.prediction.decode.expected_s / tokens_per_step(d.request.plan);
  }
  const StepEstimate& predicted = d.predicted();
  x.share_of_roof = predicted.roof_s / x.step_s;
  x.over_expected = x.step_s / predicted.expected_s;
  x.mbu = predicted.mbu * predicted.expected_s / x.step_s;
  x.mfu = predicted.mfu * predicted.expected_s / x.step_s;
  x.wall = predicted.wall;
  x.next_wall = predicted.next_wall;
  find_useful_batch(d);
}

}  // namespace ridge
