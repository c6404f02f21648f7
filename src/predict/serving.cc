#include "predict/serving.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

// Seconds that a prompt adds to the steps which carry its chunks.
double added_by_prompt(const Request& r, const Rank& rank, const Ceilings& c,
                       const Sequences& decode, double decode_s, double prompt) {
  Plan plan = r.plan;
  plan.chunk = std::min(r.plan.chunk > 0 ? r.plan.chunk : r.stack.chunk, prompt);
  std::vector<Op> ops;
  double added = 0;
  for (const Sequences& chunk : prefill_steps(plan, prompt, 1)) {
    const Sequences both[] = {decode, chunk};
    lower(rank, both, ops);
    added += estimate_step(ops, c, rank.math).expected_s - decode_s + r.stack.prompt_step;
  }
  return added;
}

}  // namespace

ServingEstimate estimate_serving(const Request& r, const Load& load) {
  const Rank rank = make_rank(*r.model, r.plan);
  const Ceilings c = make_ceilings(r.system, r.plan, r.stack, r.model->layers());
  // Halfway through its answer a sequence holds the prompt and half the output.
  const double context = load.prompt + load.output / 2;
  const MemoryFit memory =
      fit_memory(rank, r.system, load.clients, context, std::min(load.prompt, r.stack.chunk));
  ServingEstimate e;
  e.running = load.clients;
  if (memory.capacity) e.running = std::clamp(memory.max_batch, 1.0, load.clients);

  const double here = std::max(1.0, e.running / r.plan.dp / r.plan.pp);
  const Sequences decode{here, 1, context, 1};
  std::vector<Op> ops;
  lower(rank, {&decode, 1}, ops);
  e.decode_s = estimate_step(ops, c, rank.math).expected_s;
  e.prompt_s = added_by_prompt(r, rank, c, decode, e.decode_s, load.prompt);

  const double others = std::max(0.0, e.running / r.plan.dp - 1);
  e.tpot_s = e.decode_s + others / load.output * e.prompt_s;
  // One's own prompt, half a step under way, the prompts of a burst that come first, and, where
  // the memory holds fewer than the clients, a slot that must fall free.
  const double answer = load.output * e.tpot_s;
  e.ttft_s = r.stack.first + e.prompt_s + e.decode_s * 1.5 + r.stack.burst * others * e.prompt_s +
             (load.clients / e.running - 1) * answer;
  e.tokens_per_s = e.running * load.output / (answer + e.prompt_s);
  return e;
}

}  // namespace ridge
