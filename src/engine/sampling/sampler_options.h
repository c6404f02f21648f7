// What a request says about the choice of its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ridge {

struct LogitBias {
  Token token = 0;
  float bias = 0;  // added; minus infinity bans the token
};

constexpr int kNoLogprobs = -1;

struct SamplerOptions {
  double temperature = 0;  // 0: greedy
  int top_k = 0;           // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  int repeat_last_n = 64;        // -1: the whole sequence
  double presence_penalty = 0;   // -2 to 2
  double frequency_penalty = 0;  // -2 to 2
  std::vector<LogitBias> logit_bias = {};
  uint64_t seed = 0;
  // Log probabilities to report: of the drawn token and of this many of the most probable ones.
  int logprobs = kNoLogprobs;
};

// The sequence that the drawn token will continue: prompt, then what was generated. The draw's
// position is position().
struct SampleContext {
  std::span<const Token> tokens;
  size_t prompt_tokens = 0;  // how many of them are the prompt's
  // Tokens that may be drawn: bit t % 32 of word t / 32. Empty: all.
  std::span<const uint32_t> allowed = {};

  // Tokens behind these that are drawn but not known yet; only where Sampler::device_draws().
  size_t unknown = 0;

  size_t position() const { return tokens.size() + unknown; }
  bool allows(Token token) const {
    return allowed.empty() || (allowed[size_t(token) / 32] >> (token % 32) & 1) != 0;
  }
};

// Throws OptionError for what makes no sense, ids outside the vocabulary included.
void check_sampler_options(const SamplerOptions& options, int vocab);

}  // namespace ridge
