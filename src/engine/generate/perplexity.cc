#include "engine/generate/perplexity.h"

#include <algorithm>

#include "base/error.h"
#include "engine/generate/generate.h"

namespace ridge {

double negative_log_likelihood(std::span<const float> logits, Token token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(double(logit) - top);
  return top + std::log(sum) - double(logits[size_t(token)]);
}

TextScore score_text(Runner& runner, std::string_view text, int window,
                     const std::function<void(double)>& progress) {
  const Tokenizer* tokenizer = runner.weights().tokenizer.get();
  if (tokenizer == nullptr) throw Error("a text needs a tokenizer; random weights have none");
  const std::vector<Token> tokens = tokenizer->encode(text);
  if (tokens.size() < 2) throw Error("the text has fewer than two tokens: nothing to score");
  const auto vocab = static_cast<size_t>(runner.weights().architecture.vocab);
  const bool begins = tokenizer->adds_bos && tokenizer->bos.has_value();
  const auto room = static_cast<size_t>(window) - (begins ? 1 : 0);
  const auto chunk = static_cast<size_t>(runner.options().max_tokens);

  TextScore score;
  double sum = 0, squares = 0;
  std::vector<Token> part;
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  Ledger unused;
  for (size_t at = 0; at < tokens.size(); at += room) {
    part.clear();
    if (begins) part.push_back(*tokenizer->bos);
    const size_t end = std::min(at + room, tokens.size());
    part.insert(part.end(), tokens.begin() + long(at), tokens.begin() + long(end));
    KvSequence sequence(pool);
    for (size_t first = 0; first < part.size(); first += chunk) {
      const size_t count = std::min(chunk, part.size() - first);
      prefill(runner, sequence, std::span(part).subspan(first, count), int(count), unused);
      const std::span<const float> logits = runner.logits();
      for (size_t i = 0; i < count && first + i + 1 < part.size(); ++i) {
        const double nll =
            negative_log_likelihood(logits.subspan(i * vocab, vocab), part[first + i + 1]);
        sum += nll;
        squares += nll * nll;
        ++score.scored;
      }
    }
    if (progress) progress(double(end) / double(tokens.size()));
  }
  if (score.scored == 0) throw Error("no token was scored: windows need at least two");
  score.tokens = static_cast<long>(tokens.size());
  score.nll = sum / double(score.scored);
  score.variance = squares / double(score.scored) - score.nll * score.nll;
  // Tokens that were not scored count at the mean.
  score.bits_per_byte = score.nll * double(score.tokens) / (std::log(2.0) * double(text.size()));
  return score;
}

}  // namespace ridge
