#include "predict/endpoint.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "predict/predict.h"
#include "predict/step_times.h"

namespace ridge {

namespace {

// Halfway through its answer a sequence holds the prompt and half the output.
double endpoint_context(const Load& load) { return load.prompt + load.output / 2; }

// What a sequence takes of the cache: an engine that never preempts reserves the whole answer.
double held_context(const Stack& stack, const Load& load) {
  return stack.memory.of == MemoryShare::kv ? load.prompt + load.output : endpoint_context(load);
}

}  // namespace

Load endpoint_load(const Request& r) {
  Load load;
  load.clients = r.clients.value_or(1);
  load.rate = r.rate.value_or(0);
  load.prompt = r.prompt;
  load.output = r.output;
  return load;
}

double endpoint_chunk(const Request& r, double prompt) {
  return std::min(r.plan.chunk > 0 ? r.plan.chunk : r.stack.chunk, prompt);
}

double endpoint_batch(const Request& r, const Load& load) {
  const MemoryFit memory =
      fit_memory(make_rank(*r.model, r.plan), draft_rank(r), r.system, r.stack.memory, load.clients,
                 held_context(r.stack, load), endpoint_chunk(r, load.prompt));
  return memory.capacity ? std::min(memory.max_batch, load.clients) : load.clients;
}

EndpointParts endpoint_parts(const Request& r, const Load& load) {
  const StepKernels kernels(r);
  const double context = endpoint_context(load);
  Plan plan = r.plan;
  plan.chunk = endpoint_chunk(r, load.prompt);

  EndpointParts parts;
  parts.layers = r.model->layers();
  parts.doublings = std::log2(r.plan.tp);
  parts.running = std::max(1.0, endpoint_batch(r, load));
  parts.tokens_per_step = tokens_per_step(r.plan);
  parts.batch = std::max(1.0, parts.running / r.plan.dp);
  const double fresh = load.prompt * (1 - r.plan.prefix_hit);
  parts.together = std::max(1.0, std::min(parts.batch, r.stack.chunk / std::max(1.0, fresh)));

  const double sequences = std::max(1.0, parts.batch / r.plan.pp);
  const KernelSeconds decode = kernels.decode(sequences, context);
  parts.decode_s = decode.rest;
  parts.decode_experts_s = decode.experts;
  parts.chunks = 0;
  for (const Sequences& chunk : prefill_steps(plan, load.prompt, 1)) {
    const KernelSeconds added = kernels.added_by(chunk, sequences, context);
    parts.prompt_s += added.rest;
    parts.prompt_experts_s += added.experts;
    parts.chunks += 1;
  }
  if (const std::optional<Rank> draft = draft_rank(r)) {
    const Ceilings whole = make_ceilings(r.system, r.plan, r.stack, r.model.get());
    parts.draft_s = draft_passes(r, *draft, whole, parts.running, context).expected_s;
  }
  return parts;
}

EndpointEstimate estimate_endpoint(const EndpointParts& parts, const HostCosts& host,
                                   const Load& load) {
  const double n = parts.batch;
  const double decode = parts.decode_s + host.experts * parts.decode_experts_s + parts.draft_s +
                        host.step + host.layer * parts.layers * parts.doublings + host.sequence * n;
  const double prompt =
      host.prompt * (parts.prompt_s + host.prompt_experts * parts.prompt_experts_s);
  // A prompt's own first token never comes faster than its step is launched; others hardly wait
  // for that.
  const double own = std::max(prompt, parts.chunks * (host.prompt_floor * parts.layers - decode));
  EndpointEstimate e;
  e.running = parts.running;
  e.tpot_s = decode / parts.tokens_per_step + (n - 1) / load.output * prompt;
  const double answer = load.output * e.tpot_s;
  const double start = load.rounds > 0 ? 1 / load.rounds : 0;  // share of requests that start it
  // At the start prompts run several to a step; later one queues behind those that came before it.
  const double each = decode / parts.together + prompt;
  const double busy = std::min(0.95, n * prompt / (answer + decode + prompt));
  const double queue = std::max({busy * prompt / (2 * (1 - busy)), n * prompt - answer, 0.0});
  // Half a step is under way, one's own prompt rides on the next ones, and where the memory holds
  // fewer than the clients a slot must fall free.
  e.ttft_s = host.first + host.first_layer * parts.layers + 1.5 * decode + own +
             start * (n - 1) / 2 * each + (1 - start) * queue +
             (load.poll / 2 + load.wait) * decode +
             (load.clients / parts.running - 1) * answer * (1 - start / 2);
  e.tokens_per_s = parts.running * load.output / (answer + prompt);
  return e;
}

EndpointEstimate estimate_endpoint(const Request& r, const Load& load) {
  return estimate_endpoint(endpoint_parts(r, load), host_costs(r.stack, *r.model), load);
}

double clients_at_rate(const Request& r, const Load& load, double rate) {
  constexpr double kMost = 1 << 20;
  // Requests/s of a closed loop grow with its clients until the device or the memory is full.
  const auto served = [&](double clients) {
    Load closed = load;
    closed.clients = clients;
    const EndpointEstimate e = estimate_endpoint(r, closed);
    return clients / (e.ttft_s + load.output * e.tpot_s);
  };
  double high = 1, most = served(1);
  while (most < rate && high < kMost) {
    high *= 2;
    const double more = served(high);
    if (more < most * 1.001) break;  // full
    most = more;
  }
  if (most < rate) {
    throw OptionError("rate", fmt::format("--rate {:g}: this endpoint serves at most {:.3g} "
                                          "requests a second",
                                          rate, most));
  }
  double low = high / 2;
  while (high - low > 0.5) {
    const double middle = (low + high) / 2;
    (served(middle) < rate ? low : high) = middle;
  }
  return std::max(1.0, std::ceil(high));
}

}  // namespace ridge
