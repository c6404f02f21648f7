#include "engine/generate/generation.h"

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
  size_t cut = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    if (stop.empty()) continue;
    if (const size_t found = held_.find(stop); found != std::string::npos) {
      // Of those that end at the same place the longest one counts.
      if (found + stop.size() < end || (found + stop.size() == end && found < cut)) {
        cut = found;
        end = found + stop.size();
        stop_ = stop;
      }
    }
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
                       std::span<const Token> history, std::span<const Token> prompt,
                       std::shared_ptr<const Grammar> grammar)
    : weights_(&weights),
      sampler_(options.sampler, weights.architecture.vocab),
      filter_(options.stops),
      tokens_(history.begin(), history.end()),
      prompt_tokens_(history.size() + prompt.size()),
      max_tokens_(static_cast<size_t>(options.max_tokens)),
      min_tokens_(static_cast<size_t>(options.min_tokens)),
      stop_tokens_(options.stop_tokens),
      ignore_end_(options.ignore_end) {
  if (grammar != nullptr) grammar_.emplace(std::move(grammar));
  if (prompt.empty()) throw Error("the prompt is empty: there is nothing to continue");
  tokens_.insert(tokens_.end(), prompt.begin(), prompt.end());
}

template <typename F>
void Generation::for_each_end_token(F f) const {
  for (const Token token : stop_tokens_) f(token);
  if (ignore_end_) return;
  for (const Token token : weights_->architecture.ends) f(token);
  if (weights_->tokenizer == nullptr) return;
  for (const Token token : weights_->tokenizer->ends) f(token);
}

void Generation::fail(std::string why) {
  end_ = EndReason::failed;
  failure_ = std::move(why);
}

bool Generation::is_end_token(Token token) const {
  bool found = false;
  for_each_end_token([&](Token end) { found = found || end == token; });
  return found;
}

void Generation::update_mask() {
  const auto vocab = static_cast<size_t>(weights_->architecture.vocab);
  const bool bans_ends = generated().size() < min_tokens_;
  mask_.clear();
  if (!grammar_ && !bans_ends) return;
  mask_.assign((vocab + 31) / 32, ~uint32_t{0});
  try {
    if (grammar_) grammar_->allowed(mask_);
  } catch (const WorkLimitError& error) {
    fail(error.what());
  }
  if (vocab % 32 != 0) mask_.back() &= (uint32_t{1} << (vocab % 32)) - 1;
  if (!bans_ends) return;
  for_each_end_token([&](Token token) {
    if (size_t(token) < vocab) mask_[size_t(token) / 32] &= ~(uint32_t{1} << (token % 32));
  });
}

std::string Generation::push(Token token) {
  assert(!end_);
  tokens_.push_back(token);
  if (is_end_token(token)) {
    end_ = EndReason::end_token;
    return {};
  }
  try {
    if (grammar_ && !grammar_->accept(token)) {
      fail("the schema allows more readings of this text than can be followed");
    }
  } catch (const WorkLimitError& error) {
    fail(error.what());
  }
  if (end_) return {};
  std::string text;
  if (const Tokenizer* tokenizer = weights_->tokenizer.get()) {
    text = characters_.push(tokenizer->decode(token));
    if (generated().size() >= min_tokens_) text = filter_.push(text);
  }
  if (filter_.stopped()) {
    end_ = EndReason::stop_string;
  } else if (grammar_ && grammar_->finished()) {
    end_ = EndReason::end_token;  // nothing but an end could be drawn
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
