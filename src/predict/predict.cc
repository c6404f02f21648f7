#include "predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "predict/layout.h"
#include "step/lower.h"

namespace ridge {
namespace {

constexpr double kMaxChunks = 1e5;  // steps of one prefill; each is lowered and timed

// Sequences one replica works on at a time: replicas share the batch, pipeline stages take turns
// with micro-batches. A mean, so it need not be whole; never less than one.
double replica_batch(const Plan& plan, double batch) { return std::max(1.0, batch / plan.dp); }
double micro_batch(const Plan& plan, double batch) {
  return std::max(1.0, replica_batch(plan, batch) / plan.pp);
}

// Share of the slots of a static batch that still generate: all start together and the batch ends
// with its longest member. With exponentially distributed lengths the mean over the expected
// maximum of n is 1 / (1 + 1/2 + ... + 1/n).
double static_batch_efficiency(double n) {
  double harmonic = 0;
  for (double i = 1; i <= std::min(n, 1e5); ++i) harmonic += 1 / i;
  return 1 / harmonic;
}

double step_bytes(std::span<const Op> ops) {
  double bytes = 0;
  for (const Op& op : ops) bytes += op.count * op.work.device_bytes();
  return bytes;
}

// Adds the operators of one step to the list, by name.
void collect(std::vector<OpEstimate>& list, std::span<const Op> ops, const Ceilings& c,
             bool prefill) {
  for (const Op& op : ops) {
    const Estimate e = estimate(op, c);
    auto it = std::find_if(list.begin(), list.end(), [&](const OpEstimate& known) {
      return known.prefill == prefill && known.kind == op.kind && known.name == op.name;
    });
    if (it == list.end()) {
      it = list.insert(
          list.end(),
          OpEstimate{.name = op.name, .prefill = prefill, .kind = op.kind, .math = op.math});
    }
    const double seconds = op.count * e.expected_s;
    if (seconds >= it->expected_s) it->wall = e.wall;
    it->count += op.count;
    it->flops += op.count * (op.work.flops + op.work.vector_flops);
    it->bytes += op.count * op.work.device_bytes();
    it->weight_bytes += op.count * op.work.weight_bytes;
    it->kv_bytes += op.count * op.work.kv_bytes;
    it->act_bytes += op.count * op.work.act_bytes;
    it->chip_bytes += op.count * op.work.chip_bytes;
    it->roof_s += op.count * e.roof_s;
    for (int i = 0; i < kTimedWalls; ++i) it->on[i] += op.count * e.on[i];
    it->expected_s += seconds;
  }
}

StepEstimate run_prefill(const Request& r, const Rank& rank, const Ceilings& c,
                         std::vector<OpEstimate>& list) {
  StepEstimate sum;
  std::vector<Op> ops;
  for (const Sequences& step : prefill_steps(r.plan, r.prompt, 1)) {
    lower(rank, {&step, 1}, ops);
    append(sum, estimate_step(ops, c, rank.math), c, rank.math);
    collect(list, ops, c, true);
  }
  return sum;
}

Sequences decode_batch(const Plan& plan, double batch, double context) {
  const double fresh = 1 + plan.speculate;
  return {micro_batch(plan, batch), fresh, std::max(0.0, context - fresh), fresh};
}

StepEstimate run_decode(const Request& r, const Rank& rank, Ceilings& c,
                        std::vector<OpEstimate>& list) {
  std::vector<Op> ops;
  const Sequences step = decode_batch(r.plan, r.batch, r.context);
  lower(rank, {&step, 1}, ops);
  place_working_set(c, r.system.device, step_bytes(ops));
  collect(list, ops, c, false);
  return estimate_step(ops, c, rank.math);
}

StepEstimate run_mixed(const Request& r, const Rank& rank, const Ceilings& ceilings) {
  const std::vector<Sequences> chunks = prefill_steps(r.plan, r.prompt, 1);
  const Sequences both[] = {decode_batch(r.plan, r.batch, r.context), chunks[chunks.size() / 2]};
  std::vector<Op> ops;
  lower(rank, both, ops);
  return estimate_step(ops, ceilings, rank.math);
}

void add_money_and_energy(Prediction& p, const Request& r) {
  if (r.clients ? !p.endpoint : !p.memory.fits) return;
  const double rate = p.endpoint ? p.endpoint->tokens_per_s : p.tokens_per_s;
  const double devices = r.plan.devices();
  const Maybe price = r.price_per_hour ? r.price_per_hour : r.system.device.price_per_hour;
  if (price) p.dollars_per_mtok = *price * (devices + r.idle) / 3600 / rate * 1e6;
  if (r.system.device.power) p.joules_per_token = *r.system.device.power * devices / rate;
}

void add_notes(Prediction& p, const Request& r, const Ceilings& c, const Rank& rank) {
  p.notes.insert(p.notes.end(), c.notes.begin(), c.notes.end());
  const DType runs_as = c.runs_as[static_cast<int>(rank.math)];
  if (runs_as != rank.math) {
    p.notes.push_back(fmt::format("{} has no {} matrix units: GEMMs run in {}",
                                  r.system.device.name, dtype_name(rank.math),
                                  dtype_name(runs_as)));
  }
  if (!p.memory.capacity) {
    p.notes.push_back(fmt::format("the memory size of {} is unknown, so the fit is not checked",
                                  r.system.device.name));
  }
  const double longest = std::max({r.context, r.prompt, r.clients ? r.prompt + r.output : 0});
  if (longest > double(r.model->max_context) && r.model->max_context > 0) {
    p.notes.push_back(fmt::format("context {:.0f} is beyond the model's {} tokens", longest,
                                  r.model->max_context));
  }
  if (r.idle > 0) {
    p.notes.push_back(fmt::format("the fastest layout uses {} of {} devices", r.plan.devices(),
                                  r.system.devices()));
  }
  if (r.clients && !p.endpoint) {
    p.notes.push_back("no endpoint: not even one request fits the memory");
  }
}

// What cannot be held cannot run, however fast it would be.
void mark_capacity(StepEstimate& step) {
  step.next_wall = step.wall;
  step.wall = Wall::capacity;
}

}  // namespace

std::optional<Rank> draft_rank(const Request& r) {
  if (r.plan.speculate == 0 || !r.draft) return std::nullopt;
  Plan plan = r.plan;
  plan.speculate = 0;
  plan.ep = 1;
  plan.pp = 1;
  plan.weights.reset();
  return make_rank(*r.draft, plan);
}

StepEstimate draft_passes(const Request& r, const Rank& draft, const Ceilings& ceilings,
                          double batch, double context) {
  const Sequences step = decode_batch(draft.plan, batch, context);
  std::vector<Op> ops;
  lower(draft, {&step, 1}, ops);
  StepEstimate sum;
  for (int i = 0; i < r.plan.speculate; ++i) {
    append(sum, estimate_step(ops, ceilings, draft.math), ceilings, draft.math);
  }
  return sum;
}

void check_request(const Request& r) {
  const auto between = [](double value, double low, double high, const char* name) {
    if (!(value >= low && value <= high)) {
      throw Error("{} must be from {} to {}, not {}", name, low, high, value);
    }
  };
  between(r.batch, 1, 1e7, "batch");
  between(r.context, 1, 1e9, "context");
  between(r.prompt, 1, 1e9, "prompt");
  between(r.clients.value_or(1), 1, 1e7, "clients");
  between(r.output, 1, 1e9, "output");
  between(r.plan.chunk, 0, 1e9, "chunk");
  between(r.plan.prefix_hit, 0, 1, "prefix-hit");
  between(r.plan.acceptance, 0, 1, "acceptance");
  between(r.plan.speculate, 0, 64, "speculate");
  between(r.plan.offload, 0, 1, "offload");
  between(r.plan.expert_skew, 0, 4, "expert-skew");
  if (r.clients && !r.plan.continuous) {
    throw Error("an endpoint batches continuously: --clients excludes --no-continuous");
  }
  const double chunk = r.clients ? endpoint_chunk(r, r.prompt) : r.plan.chunk;
  if (chunk > 0 && r.prompt / chunk > kMaxChunks) {
    throw Error("a prompt of {} in chunks of {} takes more than {} steps", r.prompt, chunk,
                kMaxChunks);
  }
  if (const int heads = uneven_heads(*r.model, r.plan.tp); heads > r.plan.tp) {
    throw Error("tp {} does not divide the {} attention heads of {}", r.plan.tp, heads,
                r.model->name);
  }
  // In floating point: absurd degrees must not wrap around into possible ones.
  const double devices = double(r.plan.tp) * r.plan.pp * r.plan.dp;
  if (devices > r.system.devices()) {
    throw Error("tp {} x pp {} x dp {} needs {:.0f} devices; {} has {}", r.plan.tp, r.plan.pp,
                r.plan.dp, devices, r.system.name(), r.system.devices());
  }
}

Prediction predict(const Request& r) {
  check_request(r);
  const Rank rank = make_rank(*r.model, r.plan);
  const Ceilings ceilings = make_ceilings(r.system, r.plan, r.stack, r.model.get());
  Ceilings decode_ceilings = ceilings;

  Prediction p;
  p.math = rank.math;
  const std::optional<Rank> draft = draft_rank(r);
  p.memory = fit_memory(rank, draft, r.system, r.stack.memory, r.batch, r.context,
                        r.clients ? endpoint_chunk(r, r.prompt) : r.prompt);
  p.prefill = run_prefill(r, rank, ceilings, p.ops);
  p.decode = run_decode(r, rank, decode_ceilings, p.ops);
  if (r.plan.chunk > 0) p.mixed = run_mixed(r, rank, decode_ceilings);
  if (r.clients) {
    const Load load = endpoint_load(r);
    if (endpoint_batch(r, load) > 0) {
      p.endpoint = estimate_endpoint(r, load);
      if (r.rate) p.endpoint->tokens_per_s = *r.rate * r.output;  // no more than is asked for
    }
  }

  p.tokens_per_step = tokens_per_step(r.plan);
  if (draft) {
    const StepEstimate passes = draft_passes(r, *draft, decode_ceilings, r.batch, r.context);
    p.draft_s = passes.expected_s;
    append(p.decode, passes, decode_ceilings, rank.math);
  }
  if (!r.plan.continuous)
    p.batch_efficiency = static_batch_efficiency(replica_batch(r.plan, r.batch));
  const double tokens = r.batch * p.tokens_per_step * p.batch_efficiency;
  p.tokens_per_s = tokens / p.decode.expected_s;
  p.roof_tokens_per_s = tokens / p.decode.roof_s;
  add_money_and_energy(p, r);
  add_notes(p, r, decode_ceilings, rank);
  if (!p.memory.fits) {
    mark_capacity(p.prefill);
    mark_capacity(p.decode);
  }
  return p;
}

std::vector<Prediction> predict_all(std::span<const Request> requests, std::atomic<size_t>* done) {
  std::vector<Prediction> results(requests.size());
  parallel_for(requests.size(), [&](size_t i) {
    results[i] = predict(requests[i]);
    if (done) ++*done;
  });
  return results;
}

}  // namespace ridge
