#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// From the best of the row where that settles it, so that a device keeps the rest.
const Sampled& next_token(Runner& runner, Sampler& sampler, std::span<const Token> recent) {
  if (const TopLogitsRequest* ask = sampler.ask(recent)) {
    const TopLogits& top = runner.top_logits({ask, 1}).front();
    if (const Sampled* sampled = sampler.sample(top, recent)) return *sampled;
  }
  return sampler.sample(runner.logits(), recent);
}

}  // namespace

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

void prefill(Runner& runner, CachedSequence& sequence, std::span<const Token> tokens, int logits,
             Ledger& ledger) {
  const auto chunk = static_cast<size_t>(runner.options().max_tokens);
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const std::span<const Token> part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
    const bool last = at + part.size() == tokens.size();
    const int past = sequence.length();
    sequence.extend(static_cast<int>(part.size()));
    const Slice slice{part, past, sequence.pages(), last ? logits : 0};
    const Clock::time_point start = Clock::now();
    runner.run({&slice, 1});
    const Sequences work{1, double(part.size()), double(past), double(slice.logits)};
    ledger.record({&work, 1}, seconds_since(start));
  }
}

Generated generate(Runner& runner, CachedSequence& sequence, std::span<const Token> prompt,
                   const GenerateOptions& options,
                   const std::function<void(std::string_view)>& show,
                   std::span<const Token> history) {
  if (prompt.empty()) throw Error("the prompt is empty: there is nothing to continue");
  const Clock::time_point begin = Clock::now();
  const Tokenizer* tokenizer = runner.weights().tokenizer.get();
  const int room = runner.options().cache_tokens;
  if (sequence.length() + int(prompt.size()) > room) {
    throw Error("the prompt's {} tokens do not fit a context of {}: raise --context",
                sequence.length() + int(prompt.size()), room);
  }
  Sampler sampler(options.sampler, runner.weights().architecture.vocab);
  Utf8Stream characters;
  StopFilter filter(options.stops);
  Generated made;
  std::vector<Token> recent(history.begin(), history.end());
  recent.insert(recent.end(), prompt.begin(), prompt.end());

  const auto ends = [&](Token token) {
    const auto among = [token](const auto& list) {
      return std::find(list.begin(), list.end(), token) != list.end();
    };
    return !options.ignore_end && (among(runner.weights().architecture.ends) ||
                                   (tokenizer != nullptr && among(tokenizer->ends)));
  };
  const auto emit = [&](std::string_view text) {
    if (text.empty()) return;
    made.text += text;
    if (show) show(text);
  };

  runner.set_profile(options.profile ? &made.prompt_profile : nullptr);
  prefill(runner, sequence, prompt, 1, made.prompt);
  runner.set_profile(options.profile ? &made.generation_profile : nullptr);
  while (true) {
    made.sampled.push_back(next_token(runner, sampler, recent));
    const Token token = made.sampled.back().token;
    made.tokens.push_back(token);
    recent.push_back(token);
    if (made.tokens.size() == 1) made.first_token_s = seconds_since(begin);
    if (ends(token)) {
      made.end = EndReason::end_token;
      break;
    }
    if (tokenizer != nullptr) emit(filter.push(characters.push(tokenizer->decode(token))));
    if (filter.stopped()) {
      made.end = EndReason::stop_string;
      break;
    }
    if (static_cast<int>(made.tokens.size()) >= options.max_tokens) break;
    if (sequence.length() >= room) {
      made.end = EndReason::context;
      break;
    }
    prefill(runner, sequence, {&token, 1}, 1, made.generation);
  }
  runner.set_profile(nullptr);
  made.generation_s = seconds_since(begin) - made.first_token_s;
  emit(filter.push(characters.finish()));
  emit(filter.finish());
  return made;
}

}  // namespace ridge
