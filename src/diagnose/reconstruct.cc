#include "diagnose/reconstruct.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/thresholds.h"

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

void find_batch(Reconstruction& run, const Observations& seen,
                const std::optional<Request>& request) {
  const auto found = [&](double batch, std::string from) {
    run.batch = std::max(1.0, batch);
    run.batch_from = std::move(from);
  };
  if (seen.has(Quantity::batch)) return found(*seen[Quantity::batch], "as observed");
  // An average since the start has idle time in its rate, not in its latency.
  const double rate = seen.value_or(Quantity::tokens_per_s, 0);
  if (rate > 0 && seen.is_recent(Quantity::tokens_per_s) && seen.has(Quantity::itl)) {
    // Little's law: sequences at once = rate x time each takes per token.
    return found(std::max(1.0, std::round(rate * *seen[Quantity::itl])),
                 "tok/s x inter-token latency");
  }
  if (seen.value_or(Quantity::running, 0) > 0) {
    return found(std::max(1.0, std::round(*seen[Quantity::running])), "requests running");
  }
  if (rate > 0 && seen.is_recent(Quantity::tokens_per_s) && request) {
    run.batch_predicted = true;
    return found(batch_that_yields(*request, rate), "the batch that would yield this rate");
  }
  if (seen.has(Quantity::concurrency)) {
    return found(*seen[Quantity::concurrency], "requests that the client keeps in flight");
  }
}

// A trace that marks its steps says what they carry.
void take_marked_steps(Reconstruction& run, const KernelProfile& profile) {
  if (profile.steps <= 0) return;
  if (profile.prefill_tokens > 4 * profile.decode_tokens) {
    run.phase = Phase::prefill;
  } else if (profile.decode_tokens > 0) {
    run.batch = std::max(1.0, std::round(profile.decode_tokens / profile.steps));
    run.batch_from = "steps that the trace marks";
  }
}

void find_step(Reconstruction& run, const Observations& seen) {
  if (run.phase == Phase::prefill) {
    run.step_s = seen[Quantity::ttft];
  } else if (seen.has(Quantity::decode_step)) {
    run.step_s = seen[Quantity::decode_step];
  } else if (seen.has(Quantity::itl)) {
    run.step_s = *seen[Quantity::itl] * run.tokens_per_step;
  } else if (seen.is_recent(Quantity::tokens_per_s) && run.batch &&
             *seen[Quantity::tokens_per_s] > 0) {
    run.step_s = *run.batch * run.tokens_per_step / *seen[Quantity::tokens_per_s];
  } else if (seen.has(Quantity::step_time)) {
    run.step_s = seen[Quantity::step_time];
  }
}

// The smallest batch within 10 % of the best throughput among those that fit.
void find_useful_batch(Expected& x) {
  const MemoryFit& memory = x.prediction.memory;
  const double most = std::min(4096.0, memory.capacity ? memory.max_batch : 256.0);
  double best = 0;
  std::vector<std::pair<double, double>> curve;
  for (double batch = 1; batch <= most; batch *= 2) {
    curve.emplace_back(batch, throughput(x.request, batch));
    best = std::max(best, curve.back().second);
  }
  for (const auto& [batch, rate] : curve) {
    if (rate < 0.9 * best) continue;
    x.useful_batch = batch;
    x.useful_tokens_per_s = rate;
    return;
  }
}

// Between a user's tokens run prompts of others, too. What they cost is no part of a decode step.
// Engines that time decode steps themselves leave them out already.
void take_off_prompts(Reconstruction& run, const Observations& seen) {
  const Request& r = run.expected->request;
  if (run.phase != Phase::decode || !run.step_s || seen.has(Quantity::decode_step)) return;
  if (!seen.has(Quantity::itl) || !seen.has(Quantity::output)) return;
  Load load;
  load.clients = *run.batch;
  load.prompt = r.prompt;
  load.output = *seen[Quantity::output];
  const EndpointParts parts = endpoint_parts(r, load);
  const HostCosts& host = host_costs(r.stack, *r.model);
  const double prompt =
      host.prompt * (parts.prompt_s + host.prompt_experts * parts.prompt_experts_s);
  const double prompts_s = (parts.batch - 1) / load.output * prompt;
  if (prompts_s <= 0 || prompts_s >= 0.9 * *run.step_s) return;
  run.prompts_s = prompts_s;
  run.step_s = *run.step_s - prompts_s;
}

// The cache's usage says how long the sequences are.
void infer_context(Reconstruction& run, const Observations& seen) {
  Request& r = run.expected->request;
  const double usage = seen.value_or(Quantity::kv_usage, 0);
  if (!run.batch || usage < 0.02) return;
  double tokens = seen.value_or(Quantity::kv_tokens, 0);
  if (tokens <= 0) {
    const MemoryFit memory = predict(r).memory;
    if (!memory.capacity) return;
    tokens = memory.max_batch * r.context;
  }
  const double context = std::round(usage * tokens / *run.batch);
  if (context < 16 || context > 1e6) return;
  r.context = context;
  run.context_known = true;
}

void find_floor(Reconstruction& run) {
  run.floor_s = run.predicted().roof_s;
  if (run.context_known || run.phase == Phase::prefill) return;
  Request empty = run.expected->request;
  empty.context = 1;
  run.floor_s = predict(empty).decode.roof_s;
}

void compare(Reconstruction& run, const Observations& seen) {
  Expected& x = *run.expected;
  if (seen.is_recent(Quantity::tokens_per_s)) {
    x.effective_batch =
        *seen[Quantity::tokens_per_s] * x.prediction.decode.expected_s / run.tokens_per_step;
  }
  if (!run.step_s) return;
  const StepEstimate& predicted = run.predicted();
  x.share_of_roof = predicted.roof_s / *run.step_s;
  x.over_expected = *run.step_s / predicted.expected_s;
  x.mbu = predicted.mbu * predicted.expected_s / *run.step_s;
  x.mfu = predicted.mfu * predicted.expected_s / *run.step_s;
}

}  // namespace

bool Reconstruction::is_slow() const {
  return compares() &&
         *step_s > predicted().high_s * (context_known ? 1 : thresholds::kContextSlack);
}

bool Reconstruction::in_band() const {
  return compares() && !is_slow() && *step_s >= thresholds::kRoofSlack * floor_s;
}

bool Reconstruction::under_batched(double share) const {
  return expected && batch && *batch < share * expected->useful_batch;
}

Reconstruction reconstruct(const Observations& seen, const std::optional<Request>& request,
                           bool context_known) {
  Reconstruction run;
  run.context_known = context_known;
  const bool decodes = seen.has(Quantity::itl) || seen.has(Quantity::decode_step) ||
                       seen.value_or(Quantity::tokens_per_s, 0) > 0 || seen.has(Quantity::running);
  run.phase = !decodes && seen.has(Quantity::ttft) ? Phase::prefill : Phase::decode;
  if (!decodes && seen.profile) take_marked_steps(run, *seen.profile);
  run.tokens_per_step = request ? tokens_per_step(request->plan) : 1;
  if (seen.has(Quantity::accepted)) run.tokens_per_step = 1 + *seen[Quantity::accepted];
  if (!run.batch) find_batch(run, seen, request);
  find_step(run, seen);
  if (request) {
    run.expected.emplace();
    Expected& x = *run.expected;
    x.request = *request;
    x.request.batch = run.batch.value_or(1);
    if (run.phase == Phase::prefill && seen.profile && seen.profile->steps > 0) {
      x.request.prompt = std::max(1.0, seen.profile->prefill_tokens / seen.profile->steps);
    }
    if (!context_known) infer_context(run, seen);
    x.prediction = predict(x.request);
    find_useful_batch(x);
    find_floor(run);
    if (run.batch) take_off_prompts(run, seen);
    compare(run, seen);
  }
  return run;
}

}  // namespace ridge
