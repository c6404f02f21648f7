// The levers of a verdict: what answers it, in the words of the engine that runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diagnose/diagnose.h"
#include "diagnose/engine_settings.h"

namespace ridge {
namespace {

class VerdictLevers {
 public:
  explicit VerdictLevers(const Diagnosis& d) : d_(d) {}

  // Without a prediction: the change alone.
  void add(std::string name, std::string note, std::optional<Change> change = std::nullopt) {
    Lever lever;
    lever.name = std::move(name);
    lever.note = std::move(note);
    lever.targeted = true;
    if (change) lever.setting = setting(*change);
    levers_.push_back(std::move(lever));
  }

  // With one, where the request is known. A change that gains nothing, does not fit or is refused
  // is no lever.
  template <typename Edit>
  void add(std::string name, std::string note, std::optional<Change> change, Edit edit) {
    if (!d_.run.expected) return add(std::move(name), std::move(note), change);
    const Expected& e = *d_.run.expected;
    try {
      Request changed = e.request;
      edit(changed);
      const Prediction p = predict(changed);
      const double scale = double(e.request.plan.devices()) / changed.plan.devices();
      const double gain = p.tokens_per_s / e.prediction.tokens_per_s * scale;
      const double ttft_gain = e.prediction.ttft_s() / p.ttft_s();
      const double faster = e.prediction.tpot_s() / p.tpot_s();
      if (!p.memory.fits || std::max({gain, ttft_gain, faster}) < 1.005) return;
      add(std::move(name), std::move(note), change);
      predicted(gain, p.tpot_s(), ttft_gain,
                (d_.run.phase == Phase::prefill ? p.prefill : p.decode).wall);
    } catch (const Error&) {
    }
  }

  // The last added one gains this much.
  void predicted(double gain, double tpot_s, double ttft_gain, Wall next) {
    Lever& lever = levers_.back();
    lever.predicted = true;
    lever.gain = gain;
    lever.tpot_s = tpot_s;
    lever.ttft_gain = ttft_gain;
    lever.next_wall = next;
  }

  // Where the engine is not known, the two most used ones' words.
  std::string setting(Change change) const {
    const std::string& engine = d_.seen.setup.engine;
    if (!engine.empty()) return std::string(engine_setting(engine, change));
    const std::string_view vllm = engine_setting("vllm", change);
    const std::string_view sglang = engine_setting("sglang", change);
    if (vllm == sglang || sglang.empty()) return std::string(vllm);
    return fmt::format("{} (vLLM), {} (SGLang)", vllm, sglang);
  }
  std::vector<Lever> take() { return std::move(levers_); }

 private:
  const Diagnosis& d_;
  std::vector<Lever> levers_;
};

const Expected* expected(const Diagnosis& d) { return d.run.expected ? &*d.run.expected : nullptr; }

void add_batch(VerdictLevers& to, const Diagnosis& d, const char* note,
               std::optional<Change> change) {
  const Expected* e = expected(d);
  if (!e || !d.run.batch) return to.add("more sequences at once", note, change);
  double most = std::max(e->useful_batch, 2 * *d.run.batch);
  // What the cache holds, by its own usage.
  const double kv = d.seen.value_or(Quantity::kv_usage, 0);
  if (kv > 0.01) most = std::min(most, std::floor(*d.run.batch / kv));
  if (most <= *d.run.batch) return;
  to.add(fmt::format("batch {:.0f} -> {:.0f}", *d.run.batch, most), note, change,
         [=](Request& r) { r.batch = most; });
}

// To run as a good stack does.
void add_close_the_gap(VerdictLevers& to, const Diagnosis& d) {
  const Expected* e = expected(d);
  if (!e || e->over_expected <= 1.005) return;
  to.add("close the gap to the expected step",
         fmt::format("remove the time that the {} wall costs, at the same batch",
                     wall_name(d.wall.value_or(Wall::launch))));
  const bool prefill = d.run.phase == Phase::prefill;
  to.predicted(prefill ? 1 : e->over_expected, e->prediction.tpot_s(),
               prefill ? e->over_expected : 1, d.run.predicted().wall);
}

void add_fp8_kv(VerdictLevers& to, const Diagnosis& d) {
  const Expected* e = expected(d);
  if (!d.seen.setup.kv.empty() && d.seen.setup.kv.find("8") != std::string::npos) return;
  if (e && e->request.plan.kv.value_or(e->request.model->kv_format).bits < 9) return;
  // Twice the sequences fit, where the cache is what limits them.
  to.add("kv fp8", "half the cache bytes: twice the sequences or twice the context", Change::kv_fp8,
         [&](Request& r) {
           r.plan.kv = format_from_name("fp8");
           if (d.verdict == Verdict::kv_full) r.batch *= 1.9;
         });
}

void add_kv_room(VerdictLevers& to, const Diagnosis& d) {
  add_fp8_kv(to, d);
  to.add("more memory for the KV cache", "what the engine leaves unused", Change::kv_room);
  to.add("a shorter longest sequence", "fewer tokens are reserved or kept",
         Change::less_reservation);
  if (d.seen.value_or(Quantity::preemptions, 0) > 0) {
    to.add("fewer running sequences", "no preemption: nothing is computed twice",
           Change::more_sequences);
  }
  to.add("weights fp8", "frees memory for the cache", Change::quantized_weights, [](Request& r) {
    const double bits = (r.plan.weights ? *r.plan.weights : main_weight_format(*r.model)).bits;
    if (bits < 9) throw Error("already");
    r.plan.weights = format_from_name("fp8");
    r.batch *= 1.2;
  });
  to.add("more tensor-parallel ranks", "weights are shared by more devices, the rest is cache",
         Change::tensor_parallel);
}

void add_host(VerdictLevers& to, const Diagnosis& d) {
  const Expected* e = expected(d);
  const bool eager = d.seen.setup.eager.value_or(false) || (e && !e->request.plan.graphs);
  if (eager) {
    to.add("CUDA graphs", "no host work between kernels", Change::cuda_graphs,
           [](Request& r) { r.plan.graphs = true; });
  } else if (d.seen.has(Quantity::graph_max) || d.seen.has(Quantity::graph_share)) {
    to.add("CUDA graphs for larger batches", "steps beyond the largest graph are launched eagerly",
           Change::graph_sizes);
  }
  add_close_the_gap(to, d);
  to.add("more host cores, or more API and tokenizer processes",
         "tokenizing, detokenizing and scheduling keep up with the device", Change::host_processes);
}

void add_links(VerdictLevers& to, const Diagnosis& d) {
  const Expected* e = expected(d);
  if (!e || e->request.plan.tp > 1) {
    to.add(e ? fmt::format("tp {} -> {} with twice the replicas", e->request.plan.tp,
                           e->request.plan.tp / 2)
             : "fewer tensor-parallel ranks, more replicas",
           "less communication; each device reads more weights", Change::tensor_parallel,
           [](Request& r) {
             r.plan.tp /= 2;
             r.plan.dp *= 2;
           });
    to.add("pipeline stages instead of tensor ranks", "one message per stage and step",
           Change::tensor_parallel, [](Request& r) {
             r.plan.pp *= r.plan.tp;
             r.plan.tp = 1;
           });
  }
  to.add("a faster all-reduce", "one-shot kernels over NVLink or peer access",
         Change::custom_all_reduce);
  add_close_the_gap(to, d);
}

void add_prompts(VerdictLevers& to, const Diagnosis& d) {
  if (d.verdict == Verdict::prefill_interference) {
    to.add("smaller prompt chunks", "a decode step carries fewer prompt tokens",
           Change::smaller_chunk);
  }
  if (d.seen.value_or(Quantity::prompt_hit, 0) < 0.5) {
    to.add("prefix reuse, half of each prompt", "prompts that begin alike are computed once",
           Change::prefix_caching, [](Request& r) { r.plan.prefix_hit = 0.5; });
  }
  to.add("separate devices for prefill", "decode steps carry no prompts", Change::disaggregation);
  to.add("weights and arithmetic in fp8", "prompts are arithmetic: twice the rate",
         Change::quantized_weights, [](Request& r) { r.plan.weights = format_from_name("fp8"); });
}

void add_drafts(VerdictLevers& to, const Diagnosis& d) {
  const double drafted = d.seen.value_or(Quantity::drafted, 0);
  if (drafted > 1.5) {
    const int fewer = std::max(1, int(drafted / 2));
    to.add(fmt::format("{} drafts instead of {:.0f}", fewer, drafted),
           "the first drafts are accepted most often", Change::fewer_drafts,
           [=](Request& r) { r.plan.speculate = fewer; });
  }
  to.add("no speculation", "every step yields one token and verifies none", Change::fewer_drafts,
         [](Request& r) {
           r.plan.speculate = 0;
           r.draft = nullptr;
         });
}

void add_host_weights(VerdictLevers& to, const Diagnosis& d) {
  const Expected* e = expected(d);
  to.add("all layers on the device", "no step waits for the host", Change::device_layers,
         [](Request& r) { r.plan.offload = 0; });
  for (const char* format : {"fp8", "int4"}) {
    if (e &&
        (e->request.plan.weights ? *e->request.plan.weights : main_weight_format(*e->request.model))
                .bits <= format_from_name(format).bits) {
      continue;
    }
    to.add(fmt::format("weights {}", format), "fewer bytes: all of them fit the device",
           Change::quantized_weights, [=](Request& r) {
             r.plan.weights = format_from_name(format);
             r.plan.offload = 0;
           });
    if (!e) break;
  }
}

void add_targeted(VerdictLevers& to, const Diagnosis& d) {
  switch (d.verdict) {
    case Verdict::under_batched:
      add_batch(to, d, "one read of the weights serves more tokens: send more requests at once",
                std::nullopt);
      break;
    case Verdict::admission_limit:
      add_batch(to, d, "the cache has room for those who wait", Change::more_sequences);
      to.add("a less conservative reservation", "admit by what outputs really need",
             Change::less_reservation);
      break;
    case Verdict::queue_capacity:
      to.add("more replicas", "capacity grows with them; `ridge plan` finds how many",
             std::nullopt);
      if (!d.seen.has(Quantity::max_running)) {
        add_batch(to, d, "if a limit holds requests back", Change::more_sequences);
      }
      break;
    case Verdict::kv_full:
      add_kv_room(to, d);
      break;
    case Verdict::prefill_interference:
    case Verdict::prefill_bound:
    case Verdict::prefix_miss:
      add_prompts(to, d);
      break;
    case Verdict::host_bound:
      add_host(to, d);
      break;
    case Verdict::interconnect:
      add_links(to, d);
      break;
    case Verdict::slow_kernel:
      add_close_the_gap(to, d);
      break;
    case Verdict::drafts_too_long:
      add_drafts(to, d);
      break;
    case Verdict::host_weights:
      add_host_weights(to, d);
      break;
    case Verdict::power:
      to.add("a higher power limit or better cooling", "the clocks rise (nvidia-smi -pl, airflow)");
      add_close_the_gap(to, d);
      break;
    default:
      if (!d.healthy && d.seen.profile && !d.seen.profile->serialized) {
        to.add("fused kernels",
               "intermediates stay on chip: torch.compile, or an inference engine");
      }
      if (!d.healthy) add_close_the_gap(to, d);
  }
}

// What the evidence rules out, whatever the prediction says.
bool excluded(const Lever& lever, const Diagnosis& d) {
  const auto is = [&](const char* start) { return lever.name.starts_with(start); };
  if (is("batch ")) {
    const bool full = d.verdict == Verdict::kv_full || d.verdict == Verdict::host_weights;
    const bool limited = d.verdict == Verdict::admission_limit;  // its own lever says how far
    return full || limited || d.verdict == Verdict::prefill_bound;
  }
  if (is("speculation")) return d.seen.has(Quantity::accepted);
  if (is("prefix reuse")) return d.verdict == Verdict::prefix_miss;
  return false;
}

}  // namespace

std::vector<Lever> levers_for(const Diagnosis& d) {
  if (d.verdict == Verdict::idle || d.verdict == Verdict::impossible) return {};
  VerdictLevers targeted(d);
  add_targeted(targeted, d);
  std::vector<Lever> levers = targeted.take();
  sort_levers(levers, d.run.phase);
  if (!d.run.expected) return levers;
  const Expected& e = *d.run.expected;
  for (Lever& lever : rank_levers(e.request, e.prediction, d.run.phase)) {
    const bool said = std::any_of(levers.begin(), levers.end(),
                                  [&](const Lever& other) { return other.name == lever.name; });
    if (!said && !excluded(lever, d)) levers.push_back(std::move(lever));
  }
  return levers;
}

}  // namespace ridge
