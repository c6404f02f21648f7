#include "predict/endpoint.h"

#include <algorithm>
#include <cmath>

#include "predict/predict.h"
#include "step/lower.h"

namespace ridge {

namespace {

// Halfway through its answer a sequence holds the prompt and half the output.
double endpoint_context(const Load& load) { return load.prompt + load.output / 2; }

}  // namespace

double endpoint_chunk(const Request& r, double prompt) {
  return std::min(r.plan.chunk > 0 ? r.plan.chunk : r.stack.chunk, prompt);
}

double endpoint_batch(const Request& r, const Load& load) {
  const MemoryFit memory =
      fit_memory(make_rank(*r.model, r.plan), draft_rank(r), r.system, r.stack.memory, load.clients,
                 endpoint_context(load), endpoint_chunk(r, load.prompt));
  return memory.capacity ? std::min(memory.max_batch, load.clients) : load.clients;
}

EndpointParts endpoint_parts(const Request& r, const Load& load) {
  Stack kernels = r.stack;
  kernels.step = kernels.layer = 0;
  const Rank rank = make_rank(*r.model, r.plan);
  const Ceilings c = make_ceilings(r.system, r.plan, kernels);
  const double context = endpoint_context(load);
  Plan plan = r.plan;
  plan.chunk = endpoint_chunk(r, load.prompt);

  EndpointParts parts;
  parts.layers = r.model->layers();
  parts.running = std::max(1.0, endpoint_batch(r, load));
  parts.tokens_per_step = tokens_per_step(r.plan);
  parts.others = std::max(0.0, parts.running / r.plan.dp - 1);

  const double fresh = 1 + r.plan.speculate;
  const Sequences decode{std::max(1.0, parts.running / r.plan.dp / r.plan.pp), fresh, context,
                         fresh};
  std::vector<Op> ops;
  lower(rank, {&decode, 1}, ops);
  parts.decode_s = estimate_step(ops, c, rank.math).expected_s;
  for (const Sequences& chunk : prefill_steps(plan, load.prompt, 1)) {
    const Sequences both[] = {decode, chunk};
    lower(rank, both, ops);
    parts.prompt_s += estimate_step(ops, c, rank.math).expected_s - parts.decode_s;
    parts.chunks += 1;
  }
  if (const std::optional<Rank> draft = draft_rank(r)) {
    const Ceilings whole = make_ceilings(r.system, r.plan, r.stack, r.model->layers());
    parts.draft_s = draft_passes(r, *draft, whole, parts.running, context).expected_s;
  }
  return parts;
}

EndpointEstimate estimate_endpoint(const EndpointParts& parts, const Stack& stack,
                                   const Load& load) {
  const double decode = parts.decode_s + parts.draft_s + stack.step + stack.layer * parts.layers;
  const double prompt = parts.prompt_s + stack.prompt_step * parts.chunks;
  EndpointEstimate e;
  e.running = parts.running;
  e.tpot_s = decode / parts.tokens_per_step + parts.others / load.output * prompt;
  const double answer = load.output * e.tpot_s;
  // Half a step is under way, one's own prompt rides on the next ones, prompts of a burst come
  // first, and where the memory holds fewer than the clients a slot must fall free.
  e.ttft_s = stack.first + 1.5 * decode + prompt + stack.burst * parts.others * prompt +
             (load.clients / parts.running - 1) * answer;
  e.tokens_per_s = parts.running * load.output / (answer + prompt);
  return e;
}

}  // namespace ridge
