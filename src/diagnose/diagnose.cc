#include "diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "diagnose/thresholds.h"

namespace ridge {
namespace {

// Below it a guess is not a verdict.
constexpr double kLeastConfidence = 0.4;
constexpr double kMostConfidence = 0.97;

std::vector<Hypothesis> hypotheses_of(const Case& c) {
  std::vector<Hypothesis> all;
  for (const std::span<const Rule> rules :
       {soundness_rules(), scheduler_rules(), prompt_rules(), step_rules(), profile_rules()}) {
    for (const Rule rule : rules) {
      if (std::optional<Hypothesis> found = rule(c)) all.push_back(*std::move(found));
    }
  }
  // Ties stay in the order of judgement.
  std::stable_sort(all.begin(), all.end(), [](const Hypothesis& a, const Hypothesis& b) {
    return a.belief.value() > b.belief.value();
  });
  return all;
}

std::string unknown_sentence(const std::vector<Hypothesis>& all) {
  if (all.empty()) return "Not enough evidence for a verdict.";
  return fmt::format("Not enough evidence for a verdict. Most likely {}, but little speaks for it.",
                     verdict_name(all.front().verdict));
}

void decide(Diagnosis& d, std::vector<Hypothesis> all) {
  const bool known = !all.empty() && all.front().belief.value() >= kLeastConfidence;
  size_t second = 0;
  if (known) {
    Hypothesis& best = all.front();
    d.verdict = best.verdict;
    d.healthy = best.healthy;
    d.wall = best.wall;
    d.confidence = std::min(kMostConfidence, best.belief.value());
    d.sentence = best.sentence;
    d.findings = std::move(best.belief.findings);
    second = 1;
  } else {
    d.sentence = unknown_sentence(all);
  }
  while (second < all.size() && all[second].verdict == d.verdict) ++second;
  if (second >= all.size() || all[second].belief.value() < 0.15) return;
  const Hypothesis& other = all[second];
  d.runner_up = other.verdict;
  d.runner_up_confidence = std::min(kMostConfidence, other.belief.value());
  // What nearly won speaks against certainty, of both.
  if (known) {
    const double doubt = 1 - 0.3 * std::min(1.0, d.runner_up_confidence / d.confidence);
    d.confidence *= doubt;
    d.runner_up_confidence *= doubt;
  }
  for (const Finding& finding : other.belief.findings) {
    if (finding.bearing != Bearing::supports) continue;
    const bool said = std::any_of(d.findings.begin(), d.findings.end(),
                                  [&](const Finding& f) { return f.text == finding.text; });
    if (said) continue;
    d.findings.push_back({Bearing::contradicts,
                          fmt::format("for {}: {}", verdict_name(other.verdict), finding.text)});
  }
}

void find_next_wall(Diagnosis& d) {
  if (!d.run.expected) return;
  const StepEstimate& predicted = d.run.predicted();
  if (!d.wall) d.wall = predicted.wall;
  d.next_wall = d.wall == predicted.wall ? predicted.next_wall : predicted.wall;
}

// A late first token beside a decode observation.
void compare_first_token(Diagnosis& d) {
  const std::optional<double>& ttft = d.seen[Quantity::ttft];
  if (!ttft || !d.run.expected || d.run.phase == Phase::prefill) return;
  const StepEstimate& prefill = d.run.expected->prediction.prefill;
  const std::string text = fmt::format(
      "time to first token {}, expected {} - {} for {:.0f} prompt tokens", pretty_time(*ttft),
      pretty_time(prefill.low_s), pretty_time(prefill.high_s), d.run.expected->request.prompt);
  if (*ttft > prefill.high_s) {
    d.findings.push_back({Bearing::contradicts, text + ": requests queue before their prompt runs, "
                                                       "or prompts are longer"});
  } else {
    d.findings.push_back({Bearing::supports, text});
  }
}

void describe_reconstruction(Diagnosis& d) {
  const Reconstruction& run = d.run;
  if (run.batch && run.batch_from != "as observed" && !run.batch_predicted) {
    d.findings.push_back({Bearing::supports, fmt::format("{:.0f} sequences decode at once ({})",
                                                         *run.batch, run.batch_from)});
  }
  if (run.prompts_s > 0) {
    d.findings.push_back(
        {Bearing::supports,
         fmt::format("of {} per token, {} are prompts of other requests",
                     pretty_time(*run.step_s + run.prompts_s), pretty_time(run.prompts_s))});
  }
  const double batch = d.seen.value_or(Quantity::batch, 0);
  if (batch > 0 && d.seen.is_recent(Quantity::tokens_per_s) && d.seen.has(Quantity::itl)) {
    const double decoding = *d.seen[Quantity::tokens_per_s] * *d.seen[Quantity::itl];
    if (decoding * thresholds::kDisagree < batch) {
      d.findings.push_back(
          {Bearing::contradicts,
           fmt::format("tok/s x inter-token latency: only {} of the {:.0f} sequences decode",
                       pretty_number(decoding), batch)});
    }
  }
  if (run.compares() && run.phase == Phase::decode && run.expected->mfu < 0.1) {
    d.findings.push_back(
        {Bearing::supports,
         fmt::format("MFU {} is normal for decode; MBU {} is the figure to watch",
                     pretty_percent(run.expected->mfu), pretty_percent(run.expected->mbu))});
  }
  for (const std::string& conflict : d.seen.conflicts) {
    d.findings.push_back({Bearing::contradicts, conflict});
  }
}

void list_missing(Diagnosis& d) {
  const Observations& seen = d.seen;
  const auto need = [&](std::string text) { d.missing.push_back(std::move(text)); };
  if (d.run.expected && !d.run.context_known) {
    need(fmt::format("--context: {:.0f} tokens per sequence were assumed",
                     d.run.expected->request.context));
  }
  if (seen.profile) {
    if (seen.profile->wall_s == 0 && !seen.profile->serialized) {
      need("--wall-time: a summary of kernels has no gaps; nsys stats --report cuda_gpu_trace has");
    }
    return;
  }
  if (d.run.phase == Phase::decode && !d.run.batch) {
    need("--batch: how many sequences decode at once (engine metric: running)");
  }
  if (!seen.has(Quantity::itl) && !seen.has(Quantity::decode_step) &&
      seen.has(Quantity::tokens_per_s)) {
    need("--itl: inter-token latency separates slow steps from idle time");
  }
  if (!seen.has(Quantity::waiting)) {
    need(
        "--waiting: requests in the queue separate lack of demand from lack of capacity "
        "(vllm:num_requests_waiting, sglang:num_queue_reqs)");
  }
  if (seen.value_or(Quantity::waiting, 0) > 0 && !seen.has(Quantity::kv_usage)) {
    need("--kv-usage: a full cache or a limit (vllm:kv_cache_usage_perc, sglang:token_usage)");
  }
  // A CPU has none of these counters.
  if (seen.setup.device.starts_with("CPU")) return;
  if (!seen.has(Quantity::dram_active)) {
    need(
        "--dram-active: DCGM_FI_PROF_DRAM_ACTIVE shows whether memory bandwidth limits "
        "(dcgmi dmon -e 1002,1004,1005)");
  }
  if (!seen.has(Quantity::tensor_active)) {
    need("--tensor-active: DCGM_FI_PROF_PIPE_TENSOR_ACTIVE shows whether compute limits");
  }
  if (!seen.has(Quantity::gpu_util) && !seen.has(Quantity::dram_active)) {
    need("--gpu-util: shows idle time, nothing else");
  }
  if (d.verdict == Verdict::host_bound || d.verdict == Verdict::slow_kernel ||
      d.verdict == Verdict::interconnect) {
    need("a trace of a few steps (torch profiler or nsys) separates gaps, collectives and kernels");
  }
}

bool observed_nothing(const Observations& seen) {
  if (seen.profile || seen.setup.offloaded) return false;
  for (const QuantityInfo& about : all_quantities()) {
    if (seen.has(about.quantity) && about.quantity != Quantity::drafted) return false;
  }
  return seen.evidence.files.empty() ||
         (seen.evidence.files.size() == 1 && seen.evidence.files.front().observed.empty());
}

}  // namespace

Diagnosis diagnose(Observations seen, Identified identified) {
  if (observed_nothing(seen)) {
    throw Error(
        "nothing to explain: give files (metrics, traces, results) or at least one of "
        "--observed (tok/s), --itl or --ttft");
  }
  Diagnosis d;
  d.seen = std::move(seen);
  d.missing = std::move(identified.missing);
  d.taken = std::move(identified.taken);
  d.run = reconstruct(d.seen, identified.request, identified.context_known);
  const Machine* machine = identified.request  ? &identified.request->system.device
                           : identified.system ? &identified.system->device
                                               : nullptr;
  const Case c{d.seen, d.run, counter_roofs(machine, d.seen.setup.device), machine};
  decide(d, hypotheses_of(c));
  find_next_wall(d);
  compare_first_token(d);
  describe_reconstruction(d);
  list_missing(d);
  if (d.seen.profile) {
    d.operators = operator_times(*d.seen.profile, d.run.expected ? &*d.run.expected : nullptr);
  }
  if (machine) d.machine = machine->name;
  d.levers = levers_for(d);
  return d;
}

}  // namespace ridge
