#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/sampling/gumbel.h"
#include "engine/sampling/logits.h"

namespace ridge {
namespace {

SamplerOptions checked(SamplerOptions options, int vocab) {
  check_sampler_options(options, vocab);
  return options;
}

float scale_of(const SamplerOptions& options) {
  // Temperatures beyond act as these: 1 / T must be neither infinite nor 0 in f32.
  constexpr double kColdest = 1e-30, kHottest = 1e30;
  if (options.temperature == 0) return 1;
  return static_cast<float>(1 / std::clamp(options.temperature, kColdest, kHottest));
}

// The largest logit of a row that something can be drawn from.
Candidate first_of(std::span<const float> row) {
  const Candidate first = find_largest(row);
  if (first.logit == kBanned) {
    throw Error("every token is banned: nothing is left to draw from");
  }
  return first;
}

float logprob_of(float logit, double log_sum) {
  return static_cast<float>(double{logit} - log_sum);
}

// The first among scored tokens: the larger score, the lower id among equals.
struct Winner {
  Token token = 0;
  float score = kBanned;

  void offer(Token other, float other_score) {
    if (other_score > score || (other_score == score && other < token)) {
      *this = {other, other_score};
    }
  }
};

}  // namespace

Sampler::Sampler(SamplerOptions options, int vocab)
    : options_(checked(std::move(options), vocab)),
      vocab_(vocab),
      scale_(scale_of(options_)),
      cuts_(options_, scale_) {
  assert(vocab > 0);
}

uint64_t Sampler::key(const SampleContext& context) const {
  return gumbel_key(options_.seed, static_cast<int64_t>(context.position()));
}

// Step 8 over some candidates.
Token Sampler::draw_from(std::span<const Candidate> candidates, uint64_t key) const {
  Winner winner{candidates.front().token};
  for (const Candidate& c : candidates) {
    winner.offer(c.token, gumbel_score(c.logit, scale_, key, c.token));
  }
  return winner.token;
}

// From the whole row.

void Sampler::sample(std::span<const float> logits, const SampleContext& context,
                     SamplerWorkspace& workspace, Sampled& to) const {
  const std::span<const float> row = adjusted_row(logits, context, workspace);
  const Candidate first = first_of(row);
  if (greedy()) {
    to.token = first.token;
  } else if (!cuts_.any()) {
    to.token = draw_token(row, scale_, key(context)).token;
  } else {
    cuts_.keep(row, first.logit, workspace.candidates);
    to.token = draw_from(workspace.candidates, key(context));
  }
  report(logits, workspace, to);
}

// Steps 0 to 3. Without adjustments the row itself.
std::span<const float> Sampler::adjusted_row(std::span<const float> logits,
                                             const SampleContext& context,
                                             SamplerWorkspace& workspace) const {
  assert(logits.size() == static_cast<size_t>(vocab_));
  if (is_broken(logits)) throw Error("the model produced not-a-number");
  workspace.adjustments.collect(options_, context, vocab_);
  std::span<const float> row = logits;
  if (!workspace.adjustments.list().empty()) {
    workspace.logits.assign(logits.begin(), logits.end());
    for (const Adjustment& adjustment : workspace.adjustments.list()) {
      float& logit = workspace.logits[static_cast<size_t>(adjustment.token)];
      logit = adjusted_logit(logit, adjustment, options_);
    }
    row = workspace.logits;
  }
  if (!context.allowed.empty()) {
    if (row.data() == logits.data()) workspace.logits.assign(logits.begin(), logits.end());
    for (int token = 0; token < vocab_; ++token) {
      if (!context.allows(token)) workspace.logits[static_cast<size_t>(token)] = kBanned;
    }
    row = workspace.logits;
  }
  return row;
}

bool Sampler::device_draws() const {
  return (greedy() || !cuts_.any()) &&
         std::max(options_.top_k, options_.logprobs) <= kMaxCandidates &&
         options_.logit_bias.empty() && options_.repetition_penalty == 1 &&
         options_.presence_penalty == 0 && options_.frequency_penalty == 0;
}

void Sampler::report(std::span<const float> logits, SamplerWorkspace& workspace,
                     Sampled& to) const {
  to.logprob = 0;
  to.top_logprobs.clear();
  if (options_.logprobs == kNoLogprobs) return;
  const float max = largest(logits);
  const double log_sum = double{max} + std::log(sum_exponentials(logits, max, 1));
  to.logprob = logprob_of(logits[static_cast<size_t>(to.token)], log_sum);
  find_candidates(logits, options_.logprobs, workspace.candidates);
  for (const Candidate& c : workspace.candidates) {
    to.top_logprobs.emplace_back(c.token, logprob_of(c.logit, log_sum));
  }
}

void Sampler::distribution(std::span<const float> logits, const SampleContext& context,
                           SamplerWorkspace& workspace,
                           std::vector<std::pair<Token, double>>& to) const {
  const std::span<const float> row = adjusted_row(logits, context, workspace);
  const Candidate first = first_of(row);
  to.clear();
  if (greedy()) {
    to.emplace_back(first.token, 1.0);
    return;
  }
  std::vector<Candidate>& kept = workspace.candidates;
  if (cuts_.any()) {
    cuts_.keep(row, first.logit, kept);
    std::sort(kept.begin(), kept.end());
  } else {
    find_candidates(row, vocab_, kept);
  }
  double total = 0;
  for (const Candidate& c : kept) {
    const double weight = std::exp((double{c.logit} - double{first.logit}) * double{scale_});
    if (weight == 0) break;  // these and all that follow
    to.emplace_back(c.token, weight);
    total += weight;
  }
  for (auto& [token, probability] : to) probability /= total;
}

// From the top of the row.

// How many of the largest logits settle the choice, at least in most cases. Adjusted tokens may all
// fall behind the others.
int Sampler::candidates_needed(size_t adjusted) const {
  const int falling = static_cast<int>(adjusted);
  if (greedy()) return falling == 0 ? 0 : 1 + falling;
  if (!cuts_.any()) return 0;
  return options_.top_k > 0 ? options_.top_k + falling : kMaxCandidates;
}

bool Sampler::request(const SampleContext& context, SamplerWorkspace& workspace,
                      TopLogitsRequest& to) const {
  workspace.adjustments.collect(options_, context, vocab_);
  const std::span<const Adjustment> adjusted = workspace.adjustments.list();
  if (std::max(options_.top_k, options_.logprobs) > kMaxCandidates) return false;
  if (adjusted.size() > size_t{kMaxRequestedTokens}) return false;
  // Cuts depend on the sum over allowed tokens, which a device does not know.
  if (!context.allowed.empty() && !greedy() && cuts_.any()) return false;
  to.tokens.clear();
  for (const Adjustment& adjustment : adjusted) to.tokens.push_back(adjustment.token);
  const int reported = options_.logprobs == kNoLogprobs ? 0 : std::max(options_.logprobs, 1);
  to.count = std::min(std::max(candidates_needed(adjusted.size()), reported), kMaxCandidates);
  to.scale = scale_;
  to.draw = !greedy() && !cuts_.any();
  to.key = to.draw ? key(context) : 0;
  return true;
}

bool Sampler::sample(const TopLogits& top, const TopLogitsRequest& request,
                     const SampleContext& context, SamplerWorkspace& workspace, Sampled& to) const {
  if (top.broken) throw Error("the model produced not-a-number");
  workspace.adjustments.collect(options_, context, vocab_);
  const Adjustments& adjustments = workspace.adjustments;
  assert(top.requested.size() == adjustments.list().size());
  const bool chosen_decides = request.draw || (greedy() && adjustments.list().empty());
  const std::optional<Token> token = chosen_decides
                                         ? token_from_chosen(top, adjustments, context)
                                         : token_from_candidates(top, workspace, context);
  if (!token) return false;
  to.token = *token;
  report(top, adjustments, to);
  return true;
}

// The chosen token is ahead of every other one before steps 1 to 3, so afterwards only adjusted
// tokens can overtake it. Where the chosen token itself was adjusted and fell back, or is not
// allowed, tokens that are not known may be ahead.
std::optional<Token> Sampler::token_from_chosen(const TopLogits& top,
                                                const Adjustments& adjustments,
                                                const SampleContext& context) const {
  if (top.chosen.logit == kBanned || !context.allows(top.chosen.token)) return std::nullopt;
  if (greedy()) return top.chosen.token;
  const uint64_t drawn = key(context);
  const auto score = [&](float logit, Token token) {
    return gumbel_score(logit, scale_, drawn, token);
  };
  Winner winner{top.chosen.token, score(top.chosen.logit, top.chosen.token)};
  if (const Adjustment* adjustment = adjustments.find(top.chosen.token)) {
    const float logit = adjusted_logit(top.chosen.logit, *adjustment, options_);
    if (logit < top.chosen.logit) return std::nullopt;
  }
  for (size_t i = 0; i < top.requested.size(); ++i) {
    const Adjustment& adjustment = adjustments.list()[i];
    if (!context.allows(adjustment.token)) continue;
    const float logit = adjusted_logit(top.requested[i], adjustment, options_);
    winner.offer(adjustment.token, score(logit, adjustment.token));
  }
  return winner.token;
}

// The adjusted logits of all known tokens, in order. Unknown tokens lie behind the last candidate,
// so the known ones before it are the first of the whole row.
std::optional<Token> Sampler::token_from_candidates(const TopLogits& top,
                                                    SamplerWorkspace& workspace,
                                                    const SampleContext& context) const {
  const Adjustments& adjustments = workspace.adjustments;
  std::vector<Candidate>& known = workspace.candidates;
  known.clear();
  for (const Candidate& c : top.candidates) {
    if (adjustments.find(c.token) == nullptr) known.push_back(c);
  }
  for (size_t i = 0; i < top.requested.size(); ++i) {
    const Adjustment& adjustment = adjustments.list()[i];
    known.push_back({adjusted_logit(top.requested[i], adjustment, options_), adjustment.token});
  }
  std::erase_if(known,
                [&](const Candidate& c) { return c.logit == kBanned || !context.allows(c.token); });
  std::sort(known.begin(), known.end());
  const RowTail tail = tail_behind(top, adjustments, known.empty() ? 0 : known.front().logit);
  if (!tail.empty) {
    known.erase(std::upper_bound(known.begin(), known.end(), top.candidates.back()), known.end());
  }
  if (known.empty()) return std::nullopt;
  if (greedy()) return known.front().token;
  if (!cuts_.keep(tail, known)) return std::nullopt;
  return draw_from(known, key(context));
}

// `max` is the largest adjusted logit.
RowTail Sampler::tail_behind(const TopLogits& top, const Adjustments& adjustments,
                             float max) const {
  const Candidate& last = top.candidates.back();
  RowTail tail;
  tail.empty = top.candidates.size() == static_cast<size_t>(vocab_) || last.logit == kBanned;
  tail.largest = last.logit;
  const auto weight = [&](float logit) {
    return std::exp((double{logit} - double{max}) * double{scale_});
  };
  tail.total = top.scaled_sum * weight(top.candidates.front().logit);
  double added = tail.total;  // errors are relative to what was added, not to the difference
  for (size_t i = 0; i < top.requested.size(); ++i) {
    const double adjusted =
        weight(adjusted_logit(top.requested[i], adjustments.list()[i], options_));
    tail.total += adjusted - weight(top.requested[i]);
    added += adjusted;
  }
  tail.total_error = added * kSumError;
  return tail;
}

void Sampler::report(const TopLogits& top, const Adjustments& adjustments, Sampled& to) const {
  to.logprob = 0;
  to.top_logprobs.clear();
  if (options_.logprobs == kNoLogprobs) return;
  float logit = top.chosen.logit;
  if (const Adjustment* adjustment = adjustments.find(to.token)) {
    logit = top.requested[static_cast<size_t>(adjustment - adjustments.list().data())];
  } else if (to.token != top.chosen.token) {
    logit = std::find_if(top.candidates.begin(), top.candidates.end(), [&](const Candidate& c) {
              return c.token == to.token;
            })->logit;
  }
  to.logprob = logprob_of(logit, top.log_sum);
  for (const Candidate& c : std::span(top.candidates).first(size_t(options_.logprobs))) {
    to.top_logprobs.emplace_back(c.token, logprob_of(c.logit, top.log_sum));
  }
}

}  // namespace ridge
