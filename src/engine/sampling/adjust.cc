#include "engine/sampling/adjust.h"

#include <algorithm>
#include <limits>

namespace ridge {
namespace {

// The tokens that the repetition penalty looks at.
std::span<const Token> repeat_window(const SamplerOptions& options, std::span<const Token> tokens) {
  if (options.repetition_penalty == 1) return {};
  if (options.repeat_last_n < 0) return tokens;
  return tokens.last(std::min(tokens.size(), static_cast<size_t>(options.repeat_last_n)));
}

// The tokens that presence and frequency penalties look at.
std::span<const Token> counted_output(const SamplerOptions& options, const SampleContext& context) {
  if (options.presence_penalty == 0 && options.frequency_penalty == 0) return {};
  return context.tokens.subspan(context.prompt_tokens);
}

}  // namespace

float adjusted_logit(float logit, const Adjustment& adjustment, const SamplerOptions& options) {
  logit += adjustment.bias;
  if (adjustment.repeated) {
    const auto penalty = static_cast<float>(options.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  if (adjustment.generated > 0) {
    logit -= static_cast<float>(options.presence_penalty +
                                options.frequency_penalty * adjustment.generated);
  }
  return std::min(logit, std::numeric_limits<float>::max());
}

void Adjustments::collect(const SamplerOptions& options, const SampleContext& context, int vocab) {
  for (const Adjustment& adjustment : list_) places_[static_cast<size_t>(adjustment.token)] = 0;
  list_.clear();
  if (places_.size() < static_cast<size_t>(vocab)) places_.resize(static_cast<size_t>(vocab));
  const auto in_vocabulary = [&](Token token) { return token >= 0 && token < vocab; };
  for (const LogitBias& bias : options.logit_bias) at(bias.token).bias += bias.bias;
  for (const Token token : repeat_window(options, context.tokens)) {
    if (in_vocabulary(token)) at(token).repeated = true;
  }
  for (const Token token : counted_output(options, context)) {
    if (in_vocabulary(token)) ++at(token).generated;
  }
}

const Adjustment* Adjustments::find(Token token) const {
  const int32_t place = places_[static_cast<size_t>(token)];
  return place == 0 ? nullptr : &list_[static_cast<size_t>(place) - 1];
}

Adjustment& Adjustments::at(Token token) {
  int32_t& place = places_[static_cast<size_t>(token)];
  if (place == 0) {
    list_.push_back({.token = token});
    place = static_cast<int32_t>(list_.size());
  }
  return list_[static_cast<size_t>(place) - 1];
}

}  // namespace ridge
