// How well a model predicts a text that another one has written.
#pragma once

#include <span>
#include <vector>

#include "engine/runner/runner.h"

namespace ridge {

// `count` tokens drawn at temperature 1 from the runner's own distribution, after a short prompt.
// The perplexity of such a text is least for the model that wrote it: what a format adds is the
// distance between the two distributions.
std::vector<Token> write_text(Runner& runner, int count);

// exp of the mean -log p over all tokens but the first. The runner must hold a row of logits for
// each token of a step.
double text_perplexity(Runner& runner, std::span<const Token> text);

}  // namespace ridge
