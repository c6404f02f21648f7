#include "lab/lab_text.h"

#include <algorithm>
#include <cmath>

#include "engine/generate/generate.h"
#include "engine/generate/perplexity.h"

namespace ridge {

std::vector<Token> write_text(Runner& runner, int count) {
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  KvSequence sequence(pool);
  GenerateOptions options;
  options.max_tokens = count;
  options.ignore_end = true;
  options.sampler.temperature = 1;
  options.sampler.seed = 1;
  std::vector<Token> text = runner.weights().tokenizer->encode("The");
  const std::vector<Token> made = generate(runner, sequence, text, options, {}).tokens;
  text.insert(text.end(), made.begin(), made.end());
  return text;
}

double text_perplexity(Runner& runner, std::span<const Token> text) {
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  KvSequence sequence(pool);
  Ledger unused;
  const auto vocab = size_t(runner.weights().architecture.vocab);
  const auto chunk = size_t(runner.options().max_tokens);
  double sum = 0;
  for (size_t first = 0; first < text.size(); first += chunk) {
    const size_t count = std::min(chunk, text.size() - first);
    prefill(runner, sequence, text.subspan(first, count), int(count), unused);
    const std::span<const float> logits = runner.logits();
    for (size_t i = 0; i < count && first + i + 1 < text.size(); ++i) {
      sum += negative_log_likelihood(logits.subspan(i * vocab, vocab), text[first + i + 1]);
    }
  }
  return std::exp(sum / double(text.size() - 1));
}

}  // namespace ridge
