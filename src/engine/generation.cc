#include "engine/generation.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"

namespace ridge {

std::string_view end_reason_name(EndReason reason) {
  switch (reason) {
    case EndReason::end_token:
      return "end";
    case EndReason::stop_string:
      return "stop";
    case EndReason::length:
      return "length";
    case EndReason::context:
      return "context";
    case EndReason::cancelled:
      return "cancelled";
    case EndReason::failed:
      return "failed";
  }
  return "";
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t keep = 0;  // the longest tail that begins a stop string
  size_t cut = std::string::npos;
  for (const std::string& stop : stops_) {
    if (stop.empty()) continue;
    cut = std::min(cut, held_.find(stop));
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) {
        keep = length;
        break;
      }
    }
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    std::string shown = held_.substr(0, cut);
    held_.clear();
    return shown;
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopFilter::finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

Generation::Generation(const Weights& weights, const GenerateOptions& options,
                       std::span<const Token> history, std::span<const Token> prompt)
    : weights_(&weights),
      sampler_(options.sampler, weights.architecture.vocab),
      filter_(options.stops),
      tokens_(history.begin(), history.end()),
      prompt_tokens_(history.size() + prompt.size()),
      max_tokens_(static_cast<size_t>(options.max_tokens)),
      ignore_end_(options.ignore_end) {
  if (prompt.empty()) throw Error("the prompt is empty: there is nothing to continue");
  tokens_.insert(tokens_.end(), prompt.begin(), prompt.end());
}

bool Generation::is_end_token(Token token) const {
  const auto among = [token](const std::vector<Token>& list) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  const Tokenizer* tokenizer = weights_->tokenizer.get();
  return among(weights_->architecture.ends) || (tokenizer != nullptr && among(tokenizer->ends));
}

std::string Generation::push(Token token) {
  assert(!end_);
  tokens_.push_back(token);
  if (!ignore_end_ && is_end_token(token)) {
    end_ = EndReason::end_token;
    return {};
  }
  std::string text;
  if (const Tokenizer* tokenizer = weights_->tokenizer.get()) {
    text = filter_.push(characters_.push(tokenizer->decode(token)));
  }
  if (filter_.stopped()) {
    end_ = EndReason::stop_string;
  } else if (generated().size() >= max_tokens_) {
    end_ = EndReason::length;
  }
  return text;
}

std::string Generation::finish() {
  std::string text = filter_.push(characters_.finish());
  return text + filter_.finish();
}

}  // namespace ridge
