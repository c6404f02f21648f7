// Prompts, the prefix cache and speculation.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "diagnose/thresholds.h"
#include "diagnose/verdict.h"

namespace ridge {
namespace {

// Share of the device's time that prompts take, as the engine times it or as expected; 0: not
// known.
double prefill_share(const Case& c) {
  const Observations& seen = c.seen;
  if (seen.is_recent(Quantity::prefill_share)) return *seen[Quantity::prefill_share];
  if (!c.run.expected || !seen.is_recent(Quantity::requests_per_s)) return 0;
  const Prediction& p = c.run.expected->prediction;
  return *seen[Quantity::requests_per_s] * p.prefill.expected_s /
         std::max(1, c.run.expected->request.plan.dp);
}

std::string prefill_share_words(const Case& c, double share) {
  const std::string time = pretty_percent(std::min(1.0, share));
  if (c.seen.is_recent(Quantity::prefill_share)) {
    return fmt::format("prompts take {} of the steps' time", time);
  }
  return fmt::format("{}/s prompts of {} tokens take {} of the device's time",
                     pretty_number(*c.seen[Quantity::requests_per_s]),
                     pretty_number(c.run.expected->request.prompt), time);
}

std::optional<Hypothesis> judge_interference(const Case& c) {
  const Observations& seen = c.seen;
  const double p50 = seen.value_or(Quantity::itl_p50, 0), p99 = seen.value_or(Quantity::itl_p99, 0);
  const double mean = seen.value_or(Quantity::itl, 0);
  const double prompt = std::max(seen.value_or(Quantity::prompt, 0),
                                 c.run.expected ? c.run.expected->request.prompt : 0.0);
  Hypothesis x{Verdict::prefill_interference, {}, Wall::compute, "", false};
  if (p50 > 0 && p99 > thresholds::kStalls * p50) {
    x.belief.supports(0.6, fmt::format("inter-token latency: 99th percentile {}, {:.0f}x the "
                                       "median of {}",
                                       pretty_time(p99), p99 / p50, pretty_time(p50)));
  } else if (p50 > 0 && mean > thresholds::kMeanOverMedian * p50) {
    x.belief.supports(0.5, fmt::format("inter-token latency: mean {}, {:.1f}x the median of {}",
                                       pretty_time(mean), mean / p50, pretty_time(p50)));
  } else if (p50 == 0 && p99 > thresholds::kStalls * mean && mean > 0) {
    x.belief.supports(0.45, fmt::format("inter-token latency: 99th percentile {}, mean {}",
                                        pretty_time(p99), pretty_time(mean)));
  }
  if (c.run.prompts_s > 0 && c.run.step_s && c.run.prompts_s > *c.run.step_s) {
    x.belief.supports(0.5, fmt::format("of {} per token, {} are prompts of other requests",
                                       pretty_time(c.run.prompts_s + *c.run.step_s),
                                       pretty_time(c.run.prompts_s)));
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (prompt >= thresholds::kLongPrompt && seen.has(Quantity::prompt)) {
    x.belief.supports(
        0.3, fmt::format("prompts of {} tokens run between decode steps", pretty_number(prompt)));
  } else if (seen.has(Quantity::prompt) && prompt < 256) {
    x.belief.contradicts(0.5, fmt::format("prompts have {} tokens only", pretty_number(prompt)));
  }
  if (seen.value_or(Quantity::preemptions, 0) > 0) {
    x.belief.contradicts(0.5, "preempted requests stall, too");
  }
  if (seen.value_or(Quantity::ttft, 0) > 20 * std::max(p99, mean) || c.waits()) {
    x.belief.contradicts(0.75, "requests queue: a burst of prompts runs at once");
  }
  if (c.running() > 0 && c.running() < 1.5) {
    x.belief.contradicts(0.3, "one sequence has no others to wait for");
  }
  x.sentence =
      "Prefill interference: prompts of other requests run between a user's tokens and stall them. "
      "Smaller prompt chunks, a lower token budget per step, or separate prefill devices smooth "
      "it.";
  return x;
}

std::optional<Hypothesis> judge_prefill_bound(const Case& c) {
  const Observations& seen = c.seen;
  Hypothesis x{Verdict::prefill_bound, {}, Wall::compute, "", false};
  const double share = prefill_share(c), ratio = c.prompt_per_output();
  if (share > thresholds::kPrefillShare) {
    x.belief.supports(0.7, prefill_share_words(c, share));
  }
  if (ratio >= thresholds::kPromptHeavy) {
    x.belief.supports(share > 0 ? 0.2 : 0.5,
                      fmt::format("{} prompt tokens for each output token", pretty_number(ratio)));
  }
  const double prefill = seen.value_or(Quantity::prefill_time, 0);
  const double decode = seen.value_or(Quantity::decode_time, 0);
  if (prefill > decode && decode > 0) {
    x.belief.supports(0.4, fmt::format("a request spends {} on its prompt, {} on its answer",
                                       pretty_time(prefill), pretty_time(decode)));
  }
  const double ttft = seen.value_or(Quantity::ttft, 0), e2e = seen.value_or(Quantity::e2e, 0);
  const double queue = seen.value_or(Quantity::queue_time, 0);
  if (ttft > 0.5 * e2e && e2e > 0 && queue < 0.3 * ttft && seen.has(Quantity::queue_time)) {
    x.belief.supports(0.3, fmt::format("{} of {} pass before the first token, {} of it in the "
                                       "queue",
                                       pretty_time(ttft), pretty_time(e2e), pretty_time(queue)));
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (share <= thresholds::kPrefillShare && seen.is_recent(Quantity::prefill_share)) {
    x.belief.contradicts(0.5, prefill_share_words(c, share));
  }
  if (seen.value_or(Quantity::preemptions, 0) > 0) {
    x.belief.contradicts(0.6, "preempted requests are computed again, as prompts");
  }
  if (c.tensor_busy()) x.belief.supports(0.4, "the tensor cores are busy");
  if (c.tensor_quiet()) x.belief.contradicts(0.5, "the tensor cores are quiet");
  if (seen.value_or(Quantity::prompt_hit, 0) > 0.8) {
    x.belief.contradicts(0.6, "most prompt tokens are found in the prefix cache");
  }
  x.sentence =
      "Prefill-bound: the device spends its time on prompts. Prefix reuse, shorter prompts, "
      "arithmetic in fp8 or more devices for prefill help; decode settings do not.";
  return x;
}

std::optional<Hypothesis> judge_prefix_miss(const Case& c) {
  const Observations& seen = c.seen;
  const bool off = seen.setup.prefix_caching.has_value() && !*seen.setup.prefix_caching;
  const bool few = seen.value_or(Quantity::prompt_hit, 1) < thresholds::kFewHits;
  if (!off && !few) return std::nullopt;
  const double prompt = seen.value_or(Quantity::prompt, c.run.expected && c.seen.has(Quantity::ttft)
                                                            ? c.run.expected->request.prompt
                                                            : 0);
  if (prompt < 256 && seen.trust(Quantity::prompt_hit) != Trust::stated) return std::nullopt;
  Hypothesis x{Verdict::prefix_miss, {}, Wall::compute, "", false};
  if (few) {
    const bool typed = seen.trust(Quantity::prompt_hit) == Trust::stated;
    x.belief.supports(typed ? 0.6 : 0.3,
                      fmt::format("{} of the prompt tokens are found in the prefix cache",
                                  pretty_percent(*seen[Quantity::prompt_hit])));
  } else {
    x.belief.supports(0.3, "the prefix cache is switched off");
  }
  if (prompt >= thresholds::kLongPrompt) {
    x.belief.supports(0.2, fmt::format("prompts have {} tokens", pretty_number(prompt)));
  }
  if (prefill_share(c) > 0.3 || c.prompt_per_output() >= thresholds::kPromptHeavy / 2) {
    x.belief.supports(0.3, "prompts take much of the device's time");
  }
  const double ttft = seen.value_or(Quantity::ttft, 0);
  if (ttft > 1 && seen.value_or(Quantity::queue_time, 0) < 0.5 * ttft && !c.waits()) {
    x.belief.supports(0.25, fmt::format("the first token takes {}", pretty_time(ttft)));
  }
  // A gain needs prompts that share a beginning, which no counter shows.
  x.belief.contradicts(0.85, "only prompts that begin alike can hit: compare them");
  if (c.waits() && seen.value_or(Quantity::kv_usage, 0) >= thresholds::kKvFull) {
    x.belief.contradicts(0.6, "the cache is full of running sequences: prefixes are evicted");
  }
  x.sentence =
      "Missing prefix hits: prompts are computed in full. Where they begin alike, keep that part "
      "first and byte-identical, and route a conversation to the replica that has it.";
  return x;
}

std::optional<Hypothesis> judge_drafts(const Case& c) {
  const Observations& seen = c.seen;
  if (!seen.has(Quantity::accepted)) return std::nullopt;
  const double accepted = *seen[Quantity::accepted];
  const double drafted = seen.value_or(Quantity::drafted, 0);
  const std::string rate =
      drafted > 0 ? fmt::format("{:.2g} of {:.2g} draft tokens are accepted", accepted, drafted)
                  : fmt::format("a step yields {:.2f} tokens", 1 + accepted);
  Hypothesis x{Verdict::drafts_too_long, {}, std::nullopt, "", false};
  double gain = 0;
  if (c.run.expected && drafted >= 0.5) {
    Request plain = c.run.expected->request;
    plain.plan.speculate = 0;
    plain.draft = nullptr;
    gain = c.run.expected->prediction.tokens_per_s / predict(plain).tokens_per_s;
    x.wall = c.run.expected->prediction.decode.wall;
    if (gain < thresholds::kDraftsPay) {
      x.belief.supports(
          0.7, fmt::format("speculation is expected to yield {:.2f}x of plain decode", gain));
    }
  }
  const double share = drafted > 0 ? accepted / drafted : 1;
  if (share < thresholds::kFewAccepted) x.belief.supports(share < 0.2 ? 0.7 : 0.55, rate);
  if (drafted == 0 && accepted < 0.4) x.belief.supports(accepted < 0.15 ? 0.7 : 0.5, rate);
  if (x.belief.value() == 0) return std::nullopt;
  if (drafted >= 4) x.belief.supports(0.2, fmt::format("{:.0f} drafts a step", drafted));
  if (gain > 1.3) {
    x.belief.contradicts(0.6, fmt::format("a gain of {:.1f}x over plain decode is expected all the "
                                          "same",
                                          gain));
  }
  x.sentence = fmt::format(
      "Drafts that do not pay: {}. Verifying the rest costs time in every step; draft fewer "
      "tokens, use a better drafter, or switch speculation off at this batch.",
      rate);
  return x;
}

constexpr Rule kPromptRules[] = {judge_interference, judge_prefill_bound, judge_prefix_miss,
                                 judge_drafts};

}  // namespace

std::span<const Rule> prompt_rules() { return kPromptRules; }

}  // namespace ridge
