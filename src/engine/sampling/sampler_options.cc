#include "engine/sampling/sampler_options.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace ridge {
namespace {

void require(bool holds, const char* option, const char* message) {
  if (!holds) throw OptionError(option, message);
}

void check_bias(const LogitBias& bias, int vocab) {
  if (bias.token < 0 || bias.token >= vocab) {
    throw OptionError("logit-bias", fmt::format("the logit bias names token {}; ids end at {}",
                                                bias.token, vocab - 1));
  }
  require(!std::isnan(bias.bias) && bias.bias != std::numeric_limits<float>::infinity(),
          "logit-bias", "a logit bias must be a number; -inf bans the token");
}

}  // namespace

void check_sampler_options(const SamplerOptions& o, int vocab) {
  require(std::isfinite(o.temperature) && o.temperature >= 0, "temperature",
          "the temperature must be 0 (greedy) or a positive number");
  require(o.top_k >= 0, "top-k", "top-k must be 0 (all tokens) or a count of tokens");
  require(o.top_p > 0 && o.top_p <= 1, "top-p", "top-p must be above 0 and at most 1");
  require(o.min_p >= 0 && o.min_p <= 1, "min-p", "min-p must be between 0 and 1");
  require(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0, "repetition-penalty",
          "the repetition penalty must be a positive number; 1 is none");
  require(o.repeat_last_n >= -1, "repeat-last-n",
          "repeat-last-n must be -1 (all tokens), 0 or a count of tokens");
  require(std::abs(o.presence_penalty) <= 2, "presence-penalty",
          "the presence penalty must be between -2 and 2; 0 is none");
  require(std::abs(o.frequency_penalty) <= 2, "frequency-penalty",
          "the frequency penalty must be between -2 and 2; 0 is none");
  require(o.logprobs >= kNoLogprobs && o.logprobs <= vocab, "logprobs",
          "logprobs must be between 0 and the size of the vocabulary");
  for (const LogitBias& bias : o.logit_bias) check_bias(bias, vocab);
}

}  // namespace ridge
