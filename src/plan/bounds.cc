#include "plan/bounds.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

// Seconds from a lone prompt's arrival to its first token.
double lone_ttft(const Replica& replica, double prompt) {
  const double budget = replica.policy.chunked ? replica.policy.max_tokens : prompt;
  double seconds = replica.clock->first_token_overhead();
  for (double past = 0; past < prompt; past += budget) {
    const PromptChunk chunk{std::min(budget, prompt - past), past};
    seconds += replica.clock->step(0, 0, {&chunk, 1});
  }
  return seconds;
}

// Seconds of a replica that a request takes where every step decodes the largest batch.
struct FluidCost {
  double prompt = 0, answer = 0;
};
FluidCost fluid_cost(const Replica& replica, double prompt, double output) {
  const double context = prompt + output / 2;
  const double batch =
      std::clamp(replica.kv_tokens() / context, 1., double(replica.policy.max_sequences));
  const double step = replica.clock->step(batch, batch * context);
  const double fresh = std::min(prompt, double(replica.policy.max_tokens));
  const PromptChunk chunk{fresh, 0};
  const double added = replica.clock->step(batch, batch * context, {&chunk, 1}) - step;
  return {added * prompt / fresh, output * step / batch};
}

}  // namespace

PlanBounds plan_bounds(const Replica& replica, const Trace& traffic, double share) {
  std::vector<double> prompts;
  double prompt = 0, output = 0;
  for (const TraceRow& row : traffic.rows) {
    prompts.push_back(row.prompt_tokens);
    prompt += row.prompt_tokens;
    output += row.output_tokens;
  }
  std::sort(prompts.begin(), prompts.end());
  const double count = double(prompts.size());
  const bool may_hit = replica.policy.prefix_cache && traffic.block_tokens > 0;
  PlanBounds bounds;
  bounds.ttft_s = lone_ttft(replica, may_hit ? 1 : percentile(prompts, share));
  bounds.itl_s = replica.clock->step(1, 1);
  const FluidCost cost = fluid_cost(replica, prompt / count, output / count);
  bounds.requests_per_s = 1 / (cost.answer + (may_hit ? 0 : cost.prompt));
  bounds.prefill_share = cost.prompt / (cost.prompt + cost.answer);
  return bounds;
}

}  // namespace ridge
