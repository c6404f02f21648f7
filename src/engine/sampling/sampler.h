// The next token from a row of logits.
//
// In this order, each step on what the one before left:
//   1. logit_bias is added
//   2. repetition_penalty: the logit of every distinct token among the last repeat_last_n is
//      divided by it where positive, multiplied where negative (Keskar et al. 2019, section 4.1)
//   3. temperature 0 takes the largest logit, the lowest id among equals, and ends here; otherwise
//      logits are divided by the temperature
//   4. top_k: the k largest stay (the lower id among equals), then softmax
//   5. top_p: the fewest of the most probable that together reach p stay (at least one)
//   6. min_p: those with at least min_p times the probability of the first stay
//   7. one of the rest is drawn in proportion to its probability
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampling/top_logits.h"
#include "engine/tokenizer/tokenizer.h"

namespace ridge {

struct LogitBias {
  Token token = 0;
  float bias = 0;  // added; minus infinity bans the token
};

struct SamplerOptions {
  double temperature = 0;  // 0: greedy
  int top_k = 0;           // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  int repeat_last_n = 64;  // -1: all that sample() is given
  std::vector<LogitBias> logit_bias = {};
  uint64_t seed = 0;
  int logprobs = 0;  // how many of the most probable to report
};

// Log probabilities are natural and of the model's own distribution: before steps 1 to 7.
struct Sampled {
  Token token = 0;
  float logprob = 0;
  std::vector<std::pair<Token, float>> best;  // `logprobs` of them, most probable first
};

class Sampler {
 public:
  // Throws OptionError for what makes no sense, ids outside the vocabulary included.
  Sampler(SamplerOptions options, int vocab);

  // `logits` has `vocab` entries; `recent` is the sequence so far, newest last. The result is valid
  // until the next call. The draws depend on seed and number of calls alone. Throws Error where
  // logits are not numbers or nothing is left to draw from. Allocates nothing after the first call.
  const Sampled& sample(std::span<const float> logits, std::span<const Token> recent);

  // The same from the best of the row alone. ask(): what must be known of it, null where only the
  // whole row will do; valid until the next call. sample() of the answer, with the same `recent`:
  // null where that leaves the token in doubt, and then nothing has been drawn.
  const TopLogitsRequest* ask(std::span<const Token> recent);
  const Sampled* sample(const TopLogits& top, std::span<const Token> recent);

  const SamplerOptions& options() const { return options_; }

 private:
  bool cuts() const { return options_.top_k > 0 || options_.top_p < 1 || options_.min_p > 0; }
  std::span<const Token> penalised(std::span<const Token> recent) const;
  void adjust(std::span<const Token> recent);
  void report(std::span<const float> logits, float max);
  void report(const TopLogits& top);
  Token draw_from_all();
  Token draw_from_best();
  Token draw_from_candidates();
  size_t kept(const TopLogits& top, bool all_known) const;
  std::pair<double, double> total_of(const TopLogits& top) const;
  void gather(const Candidate& last);
  void gather_enough(double total);
  size_t fewest(double wanted);
  double weight_of(const Candidate& candidate) const;
  bool too_light(double weight) const;
  double mass(size_t begin, size_t end) const;
  double uniform();  // [0, 1)

  SamplerOptions options_;
  int vocab_;
  uint64_t state_;
  float scale_ = 1;            // 1 / temperature
  float max_ = 0;              // of the adjusted logits
  std::vector<float> logits_;  // adjusted; from a TopLogits: of the tokens it knows
  std::vector<float> weight_;  // exp((logit - max) scale)
  std::vector<Candidate> candidates_;
  std::vector<uint32_t> seen_;  // by token: the call that penalised it last
  uint32_t call_ = 0;
  TopLogitsRequest ask_;
  Sampled sampled_;
};

}  // namespace ridge
