#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/sampling/logits.h"

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Temperatures beyond act as these: 1 / T must be neither infinite nor 0 in f32.
constexpr double kColdest = 1e-30, kHottest = 1e30;
constexpr size_t kMostKnown = size_t{kMaxCandidates} + kMaxRequestedTokens;
// Sums of up to 10^5 doubles in any order, with room to spare: each rounds by 2^-53.
constexpr double kRounding = 1e-10;

void require(bool holds, const char* option, const char* message) {
  if (!holds) throw OptionError(option, message);
}

void validate(const SamplerOptions& o, int vocab) {
  require(std::isfinite(o.temperature) && o.temperature >= 0, "temperature",
          "the temperature must be 0 (greedy) or a positive number");
  require(o.top_k >= 0, "top-k", "top-k must be 0 (all tokens) or a count of tokens");
  require(o.top_p > 0 && o.top_p <= 1, "top-p", "top-p must be above 0 and at most 1");
  require(o.min_p >= 0 && o.min_p <= 1, "min-p", "min-p must be between 0 and 1");
  require(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0, "repetition-penalty",
          "the repetition penalty must be a positive number; 1 is none");
  require(o.repeat_last_n >= -1, "repeat-last-n",
          "repeat-last-n must be -1 (all tokens), 0 or a count of tokens");
  require(o.logprobs >= 0 && o.logprobs <= vocab, "logprobs",
          "logprobs must be between 0 and the size of the vocabulary");
  for (const LogitBias& bias : o.logit_bias) {
    if (bias.token < 0 || bias.token >= vocab) {
      throw OptionError("logit-bias", fmt::format("the logit bias names token {}; ids end at {}",
                                                  bias.token, vocab - 1));
    }
    require(!std::isnan(bias.bias) && bias.bias != kInfinity, "logit-bias",
            "a logit bias must be a number; -inf bans the token");
  }
}

}  // namespace

Sampler::Sampler(SamplerOptions options, int vocab)
    : options_(std::move(options)), vocab_(vocab), state_(options_.seed) {
  assert(vocab > 0);
  validate(options_, vocab);
  const auto size = static_cast<size_t>(vocab);
  logits_.resize(size);
  seen_.assign(size, 0);
  sampled_.best.reserve(static_cast<size_t>(options_.logprobs));
  scale_ = static_cast<float>(1 / std::clamp(options_.temperature, kColdest, kHottest));
  if (options_.temperature > 0) weight_.resize(size);
  candidates_.reserve(options_.temperature > 0 ? std::max(size, kMostKnown) : kMostKnown);
}

const Sampled& Sampler::sample(std::span<const float> logits, std::span<const Token> recent) {
  assert(logits.size() == static_cast<size_t>(vocab_));
  if (is_broken(logits)) throw Error("the model produced not-a-number");
  const float model_max = largest(logits);
  std::copy(logits.begin(), logits.end(), logits_.begin());
  adjust(recent);
  max_ = largest(logits_);
  if (max_ == -kInfinity) throw Error("every token is banned: nothing is left to draw from");
  if (options_.temperature == 0) {
    const auto best = std::find(logits_.begin(), logits_.end(), max_);  // the first of equals
    sampled_.token = static_cast<Token>(best - logits_.begin());
  } else {
    sampled_.token = cuts() ? draw_from_best() : draw_from_all();
  }
  report(logits, model_max);
  return sampled_;
}

// What of `recent` step 2 looks at.
std::span<const Token> Sampler::penalised(std::span<const Token> recent) const {
  if (options_.repetition_penalty == 1) return {};
  if (options_.repeat_last_n < 0) return recent;
  return recent.last(std::min(recent.size(), static_cast<size_t>(options_.repeat_last_n)));
}

// Steps 1 and 2.
void Sampler::adjust(std::span<const Token> recent) {
  for (const LogitBias& bias : options_.logit_bias) {
    logits_[static_cast<size_t>(bias.token)] += bias.bias;
  }
  if (++call_ == 0) {  // 2^32 calls: old marks could be mistaken for this one
    std::fill(seen_.begin(), seen_.end(), 0);
    call_ = 1;
  }
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const Token token : penalised(recent)) {
    if (token < 0 || token >= vocab_) continue;
    const auto at = static_cast<size_t>(token);
    if (seen_[at] == call_) continue;
    seen_[at] = call_;
    logits_[at] = logits_[at] > 0 ? logits_[at] / penalty : logits_[at] * penalty;
  }
}

// The log probabilities of the model's own distribution.
void Sampler::report(std::span<const float> logits, float max) {
  const double log_total = std::log(weigh(logits, max, 1, nullptr));
  const auto logprob = [&](size_t token) {
    return static_cast<float>(static_cast<double>(logits[token]) - static_cast<double>(max) -
                              log_total);
  };
  sampled_.logprob = logprob(static_cast<size_t>(sampled_.token));
  auto& best = sampled_.best;
  best.clear();
  const auto wanted = static_cast<size_t>(options_.logprobs);
  if (wanted == 0) return;
  // Kept sorted: few are wanted, and after the first thousands hardly any enters.
  for (size_t token = 0; token < logits.size(); ++token) {
    if (best.size() == wanted && !(logits[token] > best.back().second)) continue;
    if (best.size() == wanted) best.pop_back();
    const auto place = std::find_if(
        best.begin(), best.end(), [&](const auto& other) { return logits[token] > other.second; });
    best.insert(place, {static_cast<Token>(token), logits[token]});
  }
  for (auto& [token, value] : best) value = logprob(static_cast<size_t>(token));
}

// Nothing is cut off: one pass over the weights in the order of the ids.
Token Sampler::draw_from_all() {
  const double total = weigh(logits_, max_, scale_, weight_.data());
  const double wanted = uniform() * total;
  double reached = 0;
  Token last = 0;  // the last with any weight: where rounding lets the walk run out
  for (size_t token = 0; token < weight_.size(); ++token) {
    if (weight_[token] == 0) continue;
    last = static_cast<Token>(token);
    reached += static_cast<double>(weight_[token]);
    if (reached > wanted) break;
  }
  return last;
}

// Candidates in the order of their ids: those not behind `last` in the order by logit.
void Sampler::gather(const Candidate& last) {
  candidates_.clear();
  for (size_t token = 0; token < logits_.size(); ++token) {
    if (logits_[token] < last.logit) continue;
    const Candidate candidate{logits_[token], static_cast<Token>(token)};
    if (!(last < candidate) && candidate.logit > -kInfinity) candidates_.push_back(candidate);
  }
}

double Sampler::weight_of(const Candidate& candidate) const {
  return static_cast<double>(exp_negative((candidate.logit - max_) * scale_));
}

// Whether a weight, and by rounding any below it, is under min_p.
bool Sampler::too_light(double weight) const { return weight < options_.min_p * (1 - 1e-6); }

double Sampler::mass(size_t begin, size_t end) const {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += weight_of(candidates_[i]);
  return sum;
}

// The fewest of the best candidates that together weigh at least `wanted`, by halving: whether the
// better half is enough decides which half holds the last of them. Returns their number and puts
// them first.
size_t Sampler::fewest(double wanted) {
  size_t begin = 0, end = candidates_.size();
  const auto at = [&](size_t i) { return candidates_.begin() + static_cast<ptrdiff_t>(i); };
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end));
    const double better = mass(begin, middle);
    if (better >= wanted) {
      end = middle;
    } else {
      begin = middle;
      wanted -= better;
    }
  }
  return end;
}

// Enough of the best for all cuts. Every cut keeps a head of the order by logit, so tokens far
// below the first need not be looked at once those above them are known to do.
void Sampler::gather_enough(double total) {
  // exp(-8) = 0.0003 and exp(-16) = 1e-7 of the first's probability: the first is enough for a
  // sure model, the second for most.
  for (const double depth : {8.0, 16.0, std::numeric_limits<double>::infinity()}) {
    const Candidate last{static_cast<float>(double{max_} - depth / double{scale_}), vocab_};
    gather(last);
    if (options_.top_k > 0) {
      if (candidates_.size() >= static_cast<size_t>(options_.top_k)) return;
    } else if (options_.top_p < 1) {
      if (mass(0, candidates_.size()) >= options_.top_p * total) return;
    } else if (too_light(weight_of(last))) {
      return;
    }
  }
}

// Steps 4 to 7.
Token Sampler::draw_from_best() {
  double total = 0;  // of all that top_p counts
  if (options_.top_k == 0 && options_.top_p < 1) total = weigh(logits_, max_, scale_, nullptr);
  gather_enough(total);
  size_t count = candidates_.size();
  const auto top_k = static_cast<size_t>(options_.top_k);
  if (top_k > 0 && top_k < count) {
    count = top_k;
    std::nth_element(candidates_.begin(), candidates_.begin() + (options_.top_k - 1),
                     candidates_.end());
    candidates_.resize(count);
  }
  if (options_.top_p < 1) {
    if (top_k > 0) total = mass(0, count);
    count = fewest(options_.top_p * total);
    candidates_.resize(count);
  }
  gather(*std::max_element(candidates_.begin(), candidates_.end()));  // the last of the order
  return draw_from_candidates();
}

// Steps 6 and 7, the candidates in the order of their ids.
Token Sampler::draw_from_candidates() {
  if (options_.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) {
      return c.logit < max_ && weight_of(c) < options_.min_p;
    });
  }
  const double wanted = uniform() * mass(0, candidates_.size());
  double reached = 0;
  for (const Candidate& c : candidates_) {
    reached += weight_of(c);
    if (reached > wanted) return c.token;
  }
  return candidates_.back().token;
}

const TopLogitsRequest* Sampler::ask(std::span<const Token> recent) {
  const bool greedy = options_.temperature == 0;
  if (!greedy && !cuts()) return nullptr;
  if (std::max(options_.top_k, options_.logprobs) > kMaxCandidates) return nullptr;
  auto& tokens = ask_.tokens;  // all that steps 1 and 2 change
  tokens.clear();
  for (const LogitBias& bias : options_.logit_bias) tokens.push_back(bias.token);
  for (const Token token : penalised(recent)) {
    if (token >= 0 && token < vocab_) tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  if (tokens.size() > size_t{kMaxRequestedTokens}) return nullptr;
  // At worst all of these fall behind.
  const int changed = static_cast<int>(tokens.size());
  const int wanted = greedy               ? 1 + changed
                     : options_.top_k > 0 ? options_.top_k + changed
                                          : kMaxCandidates;
  ask_.count = std::min(std::max(wanted, options_.logprobs), kMaxCandidates);
  ask_.scale = greedy ? 1 : scale_;
  return &ask_;
}

// Adjusted logits of all tokens that are known, in order. What is not known lies behind the last of
// the best, and so those before it are the first of the whole vocabulary.
const Sampled* Sampler::sample(const TopLogits& top, std::span<const Token> recent) {
  if (top.broken) throw Error("the model produced not-a-number");
  for (const Candidate& c : top.candidates) logits_[static_cast<size_t>(c.token)] = c.logit;
  for (size_t i = 0; i < top.requested.size(); ++i) {
    logits_[static_cast<size_t>(ask_.tokens[i])] = top.requested[i];
  }
  adjust(recent);
  candidates_.clear();
  const auto add = [&](Token token) {
    const float logit = logits_[static_cast<size_t>(token)];
    if (logit > -kInfinity) candidates_.push_back({logit, token});
  };
  for (const Candidate& c : top.candidates) add(c.token);
  if (!ask_.tokens.empty()) {
    for (const Token token : ask_.tokens) add(token);
    std::sort(candidates_.begin(), candidates_.end());
    const auto same = [](const Candidate& a, const Candidate& b) { return a.token == b.token; };
    candidates_.erase(std::unique(candidates_.begin(), candidates_.end(), same), candidates_.end());
  }
  const Candidate& last = top.candidates.back();
  const bool all_known =
      top.candidates.size() == static_cast<size_t>(vocab_) || last.logit == -kInfinity;
  if (!all_known) {
    candidates_.erase(std::upper_bound(candidates_.begin(), candidates_.end(), last),
                      candidates_.end());
  }
  if (candidates_.empty() || candidates_.front().logit == kInfinity) return nullptr;
  max_ = candidates_.front().logit;
  sampled_.token = candidates_.front().token;
  if (options_.temperature > 0) {
    const size_t count = kept(top, all_known);
    if (count == 0) return nullptr;
    candidates_.resize(count);
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    sampled_.token = draw_from_candidates();
  }
  report(top);
  return &sampled_;
}

// How many candidates steps 4 and 5 keep; 0: in doubt.
size_t Sampler::kept(const TopLogits& top, bool all_known) const {
  size_t count = candidates_.size();
  const auto top_k = static_cast<size_t>(options_.top_k);
  if (top_k > 0) {
    if (count < top_k && !all_known) return 0;
    count = std::min(count, top_k);
  }
  if (options_.top_p == 1) {
    const bool enough = top_k > 0 || all_known || too_light(weight_of(top.candidates.back()));
    return enough ? count : 0;
  }
  const double head = mass(0, count);
  const auto [total, doubt] = top_k > 0 ? std::pair(head, head * kRounding) : total_of(top);
  double reached = 0;
  for (size_t i = 0; i < count; ++i) {
    reached += weight_of(candidates_[i]);
    if (reached >= options_.top_p * (total + doubt)) return i + 1;
    if (reached >= options_.top_p * (total - doubt)) return 0;
  }
  return 0;
}

// The weight of all adjusted logits, and how far a sum over the whole row may be from it.
std::pair<double, double> Sampler::total_of(const TopLogits& top) const {
  const auto weight = [&](float logit) {
    return std::exp((double{logit} - double{max_}) * double{scale_});
  };
  double total = top.scaled * weight(top.candidates.front().logit), added = total;
  for (size_t i = 0; i < top.requested.size(); ++i) {
    const double now = weight(logits_[static_cast<size_t>(ask_.tokens[i])]);
    total += now - weight(top.requested[i]);
    added += now;
  }
  return {total, added * kSumError};
}

void Sampler::report(const TopLogits& top) {
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - top.log_sum); };
  const auto listed = std::find_if(top.candidates.begin(), top.candidates.end(),
                                   [&](const Candidate& c) { return c.token == sampled_.token; });
  if (listed != top.candidates.end()) {
    sampled_.logprob = logprob(listed->logit);
  } else {
    const auto at = std::lower_bound(ask_.tokens.begin(), ask_.tokens.end(), sampled_.token);
    sampled_.logprob = logprob(top.requested[static_cast<size_t>(at - ask_.tokens.begin())]);
  }
  sampled_.best.clear();
  for (size_t i = 0; i < static_cast<size_t>(options_.logprobs); ++i) {
    sampled_.best.emplace_back(top.candidates[i].token, logprob(top.candidates[i].logit));
  }
}

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers everywhere, 53 bits of each.
double Sampler::uniform() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

}  // namespace ridge
