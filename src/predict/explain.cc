#include "predict/explain.h"

#include <fmt/format.h>

#include "base/units.h"
#include "predict/diagnosis.h"

namespace ridge {
namespace {

// Beside a decode observation the time to first token shows queueing, not the decode wall.
void compare_first_token(Diagnosis& d) {
  if (!d.seen.ttft_s || d.phase() == Phase::prefill) return;
  const StepEstimate& prefill = d.result.prediction.prefill;
  const std::string text =
      fmt::format("time to first token {}, expected {} - {} for {:.0f} prompt tokens",
                  pretty_time(*d.seen.ttft_s), pretty_time(prefill.low_s),
                  pretty_time(prefill.high_s), d.request.prompt);
  if (*d.seen.ttft_s > prefill.high_s) {
    d.contradicts(text + ": requests queue before their prompt runs, or prompts are longer");
  } else {
    d.supports(text);
  }
}

void list_missing(Diagnosis& d) {
  const Observation& seen = d.seen;
  const bool derived = seen.tokens_per_s && seen.itl_s;
  if (!seen.batch && !derived && d.phase() == Phase::decode) {
    d.misses("--batch: how many sequences decode at once (engine metric: running)");
  }
  if (!seen.itl_s && seen.tokens_per_s) {
    d.misses("--itl: inter-token latency separates slow steps from idle time");
  }
  if (!seen.dram_active) {
    d.misses("--dram-active: DCGM_FI_PROF_DRAM_ACTIVE shows whether memory bandwidth limits");
  }
  if (!seen.tensor_active) {
    d.misses("--tensor-active: DCGM_FI_PROF_PIPE_TENSOR_ACTIVE shows whether compute limits");
  }
  if (!seen.gpu_util && !seen.dram_active) {
    d.misses("--gpu-util: shows idle time, nothing else");
  }
}

// The first lever of a slow step is to run as a good stack does.
Lever close_the_gap(const Diagnosis& d) {
  const Explanation& x = d.result;
  Lever lever;
  lever.name = "close the gap to the expected step";
  (d.phase() == Phase::prefill ? lever.ttft_gain : lever.gain) = x.over_expected;
  lever.tpot_s = x.prediction.tpot_s();
  lever.next_wall = d.predicted().wall;
  lever.note =
      fmt::format("remove the time that the {} wall costs, at the same batch", wall_name(x.wall));
  return lever;
}

void list_levers(Diagnosis& d) {
  Explanation& x = d.result;
  x.levers = rank_levers(d.request, x.prediction, d.phase());
  // A cache that was seen full admits no larger batch, whatever the prediction says.
  if (x.verdict == Verdict::full) {
    std::erase_if(x.levers, [](const Lever& l) { return l.name.starts_with("batch "); });
  }
  if (x.verdict == Verdict::slow_step || x.verdict == Verdict::starved) {
    x.levers.push_back(close_the_gap(d));
    sort_levers(x.levers, d.phase());
  }
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"impossible", "healthy", "under-batched",
                                                "slow-step",  "starved", "full"};
  return kNames[static_cast<int>(verdict)];
}

Explanation explain(const Request& request, const Observation& observation) {
  check_observation(observation);
  Diagnosis d{request, observation, {}};
  reconstruct(d);
  judge(d);
  compare_first_token(d);
  list_missing(d);
  list_levers(d);
  return std::move(d.result);
}

}  // namespace ridge
