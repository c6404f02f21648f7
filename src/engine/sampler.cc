#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kColdest =
    1e-30;                 // temperatures below divide as this: 1 / T must be finite in f32
constexpr int kLanes = 8;  // sums that do not wait for each other; also what compilers vectorise

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

// exp(x) for x <= 0 to 2 ulp, without a call or a branch, so that the loops over the vocabulary
// become vectors: 2^n times the polynomial of Cephes' expf on |r| <= ln 2 / 2.
inline float exp_negative(float x) {
  constexpr float kMagic = 12582912;  // 1.5 x 2^23: adding it rounds to an integer
  const float clamped = std::max(x, -87.0f);
  const float n = (clamped * 1.44269504f + kMagic) - kMagic;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : y * power;
}

// Weights exp(scale (x - max)) into `weights` (where given) and their sum.
double weigh(std::span<const float> logits, float max, float scale, float* weights) {
  constexpr size_t kChunk = 1024;  // a chunk's sums stay in f32, chunks are added in double
  std::array<float, kChunk> chunk;
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, logits.size() - begin);
    float* to = weights ? weights + begin : chunk.data();
    for (size_t i = 0; i < count; ++i) to[i] = exp_negative((logits[begin + i] - max) * scale);
    std::array<float, kLanes> sums{};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += to[i + lane];
    }
    for (; i < count; ++i) sums[0] += to[i];
    for (const float sum : sums) total += static_cast<double>(sum);
  }
  return total;
}

// The largest; throws for what cannot be sampled from.
float checked_max(std::span<const float> logits) {
  std::array<float, kLanes> largest;
  largest.fill(-kInfinity);
  std::array<float, kLanes> nan{};  // x - x is 0 for a number, NaN for NaN and for infinities
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = logits[i + lane];
      largest[lane] = x > largest[lane] ? x : largest[lane];
      nan[lane] += x == -kInfinity ? 0.0f : x - x;
    }
  }
  for (; i < logits.size(); ++i) {
    largest[0] = std::max(largest[0], logits[i]);
    nan[0] += logits[i] == -kInfinity ? 0.0f : logits[i] - logits[i];
  }
  for (const float bad : nan) {
    if (bad != 0) throw Error("the model produced not-a-number");
  }
  return *std::max_element(largest.begin(), largest.end());
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
  if (options_.temperature > 0) {
    weight_.resize(size);
    candidates_.reserve(size);
  }
}

const Sampled& Sampler::sample(std::span<const float> logits, std::span<const Token> recent) {
  assert(logits.size() == static_cast<size_t>(vocab_));
  const float model_max = checked_max(logits);
  adjust(logits, recent);
  const auto best = std::max_element(logits_.begin(), logits_.end());  // the first of equals
  if (*best == -kInfinity) throw Error("every token is banned: nothing is left to draw from");
  const bool cuts = options_.top_k > 0 || options_.top_p < 1 || options_.min_p > 0;
  if (options_.temperature == 0) {
    sampled_.token = static_cast<Token>(best - logits_.begin());
  } else {
    sampled_.token = cuts ? draw_from_best(*best) : draw_from_all(*best);
  }
  report(logits, model_max);
  return sampled_;
}

// Steps 1 and 2.
void Sampler::adjust(std::span<const float> logits, std::span<const Token> recent) {
  std::copy(logits.begin(), logits.end(), logits_.begin());
  for (const LogitBias& bias : options_.logit_bias) {
    logits_[static_cast<size_t>(bias.token)] += bias.bias;
  }
  if (options_.repetition_penalty == 1) return;
  if (options_.repeat_last_n >= 0) {
    recent = recent.last(std::min(recent.size(), static_cast<size_t>(options_.repeat_last_n)));
  }
  if (++call_ == 0) {  // 2^32 calls: old marks could be mistaken for this one
    std::fill(seen_.begin(), seen_.end(), 0);
    call_ = 1;
  }
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const Token token : recent) {
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
Token Sampler::draw_from_all(float max) {
  const auto scale = static_cast<float>(1 / std::max(options_.temperature, kColdest));
  const double total = weigh(logits_, max, scale, weight_.data());
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

void Sampler::gather(float at_least) {
  candidates_.clear();
  for (size_t token = 0; token < logits_.size(); ++token) {
    if (logits_[token] >= at_least && logits_[token] > -kInfinity) {
      candidates_.push_back({logits_[token], static_cast<Token>(token)});
    }
  }
  sorted_ = 0;
}

// The first `count` candidates in order; what is behind stays as it lies.
void Sampler::sort_to(size_t count) {
  count = std::min(count, candidates_.size());
  if (count <= sorted_) return;
  const auto at = [&](size_t i) { return candidates_.begin() + static_cast<ptrdiff_t>(i); };
  if (count < candidates_.size()) std::nth_element(at(sorted_), at(count), candidates_.end());
  std::sort(at(sorted_), at(count));
  sorted_ = count;
}

// Steps 3 to 7. Every cut keeps a head of the order by logit, so tokens far below the first need
// not be looked at once those above them are known to be enough.
Token Sampler::draw_from_best(float max) {
  const double temperature = std::max(options_.temperature, kColdest);
  const auto scale = static_cast<float>(1 / temperature);
  const auto top_k = static_cast<size_t>(options_.top_k);
  const auto weight_of = [&](const Candidate& c) {
    return static_cast<double>(exp_negative((c.logit - max) * scale));
  };
  double total = 0;  // of all that top_p counts
  if (top_k == 0 && options_.top_p < 1) total = weigh(logits_, max, scale, weight_.data());
  // exp(-8) = 0.0003 and exp(-16) = 1e-7 of the first's probability: the first is enough for a
  // sure model, the second for most.
  for (const double depth : {8.0, 16.0, std::numeric_limits<double>::infinity()}) {
    const auto at_least = static_cast<float>(double{max} - depth * temperature);
    gather(at_least);
    if (top_k > 0 && candidates_.size() >= top_k) break;
    if (top_k == 0 && options_.top_p < 1) {
      double mass = 0;
      for (const Candidate& c : candidates_) mass += weight_of(c);
      if (mass >= options_.top_p * total) break;
    }
    if (top_k == 0 && options_.top_p == 1 && -std::log(options_.min_p) <= depth) break;
  }
  size_t count = candidates_.size();
  if (top_k > 0) {
    count = std::min(count, top_k);
    sort_to(count);
    total = 0;
    for (size_t i = 0; i < count; ++i) total += weight_of(candidates_[i]);
  }
  if (options_.top_p < 1) {
    constexpr size_t kFirst = 64, kGrowth = 4;
    double mass = 0;
    size_t kept = 0;
    for (size_t step = kFirst; kept < count && mass < options_.top_p * total; step *= kGrowth) {
      sort_to(std::min(step, count));
      while (kept < std::min(sorted_, count) && mass < options_.top_p * total) {
        mass += weight_of(candidates_[kept++]);
      }
    }
    count = std::max<size_t>(kept, 1);
  }
  candidates_.resize(count);
  if (options_.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) {
      return c.logit < max && weight_of(c) < options_.min_p;
    });
  }
  total = 0;
  for (const Candidate& c : candidates_) total += weight_of(c);
  const double wanted = uniform() * total;
  double reached = 0;
  for (const Candidate& c : candidates_) {
    reached += weight_of(c);
    if (reached > wanted) return c.token;
  }
  return candidates_.back().token;
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
