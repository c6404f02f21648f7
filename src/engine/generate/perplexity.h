// How well a model predicts a text.
#pragma once

#include <cmath>
#include <functional>
#include <string_view>

#include "engine/runner/runner.h"

namespace ridge {

struct TextScore {
  long tokens = 0, scored = 0;
  double nll = 0;       // mean over scored tokens, nats
  double variance = 0;  // of a token's
  double bits_per_byte = 0;

  double perplexity() const { return std::exp(nll); }
  double standard_error() const {  // of the perplexity, tokens taken as independent
    return scored > 1 ? perplexity() * std::sqrt(variance / double(scored)) : 0;
  }
};

// Windows of `window` tokens (the beginning token first where the model wants one), each token but
// the first scored. `progress` gets the share done. The runner must hold a row of logits for each
// token of a step (max_logit_rows = max_tokens) and a window in its cache.
TextScore score_text(Runner& runner, std::string_view text, int window,
                     const std::function<void(double)>& progress);

// -log p(token) under the softmax of `logits`, in nats.
double negative_log_likelihood(std::span<const float> logits, Token token);

}  // namespace ridge
