#include "predict/serving.h"

#include <algorithm>
#include <cmath>

#include "predict/predict.h"

namespace ridge {

ServingParts serving_parts(const Request& r, const Load& load) {
  Stack kernels = r.stack;
  kernels.step = kernels.layer = 0;
  const Rank rank = make_rank(*r.model, r.plan);
  const Ceilings c = make_ceilings(r.system, r.plan, kernels);
  // Halfway through its answer a sequence holds the prompt and half the output.
  const double context = load.prompt + load.output / 2;
  Plan plan = r.plan;
  plan.chunk = std::min(r.plan.chunk > 0 ? r.plan.chunk : r.stack.chunk, load.prompt);

  ServingParts parts;
  parts.layers = r.model->layers();
  parts.running = load.clients;
  const MemoryFit memory = fit_memory(rank, r.system, load.clients, context, plan.chunk);
  if (memory.capacity) parts.running = std::clamp(memory.max_batch, 1.0, load.clients);
  parts.others = std::max(0.0, parts.running / r.plan.dp - 1);

  const Sequences decode{std::max(1.0, parts.running / r.plan.dp / r.plan.pp), 1, context, 1};
  std::vector<Op> ops;
  lower(rank, {&decode, 1}, ops);
  parts.decode_s = estimate_step(ops, c, rank.math).expected_s;
  for (const Sequences& chunk : prefill_steps(plan, load.prompt, 1)) {
    const Sequences both[] = {decode, chunk};
    lower(rank, both, ops);
    parts.prompt_s += estimate_step(ops, c, rank.math).expected_s - parts.decode_s;
    parts.chunks += 1;
  }
  return parts;
}

ServingEstimate estimate_serving(const ServingParts& parts, const Stack& stack, const Load& load) {
  const double decode = parts.decode_s + stack.step + stack.layer * parts.layers;
  const double prompt = parts.prompt_s + stack.prompt_step * parts.chunks;
  ServingEstimate e;
  e.running = parts.running;
  e.tpot_s = decode + parts.others / load.output * prompt;
  const double answer = load.output * e.tpot_s;
  // Half a step is under way, one's own prompt rides on the next ones, prompts of a burst come
  // first, and where the memory holds fewer than the clients a slot must fall free.
  e.ttft_s = stack.first + 1.5 * decode + prompt + stack.burst * parts.others * prompt +
             (load.clients / parts.running - 1) * answer;
  e.tokens_per_s = parts.running * load.output / (answer + prompt);
  return e;
}

}  // namespace ridge
