// One request between steps: its tokens, its sampler, the text that was made and what ends it. It
// knows no runner and no clock, so a loop over one request and a scheduler of many use the same.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/weights/weights.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

struct GenerateOptions {
  SamplerOptions sampler;
  int max_tokens = 256;
  int min_tokens = 0;  // before these, end tokens cannot be drawn and stops do not end it
  std::vector<std::string> stops;  // text that ends the generation and is not shown
  std::vector<Token> stop_tokens;  // end it besides the model's own end tokens
  bool ignore_end = false;         // continue past the model's own end tokens
  bool profile = false;            // time operators
  // Checked before every step; once true, the generation ends with what was made. Null: never.
  const std::atomic<bool>* cancelled = nullptr;
};

enum class EndReason : uint8_t { end_token, stop_string, length, context, cancelled, failed };
// "end", "stop", "length", "context", "cancelled", "failed"
std::string_view end_reason_name(EndReason reason);

// Holds back text that may turn out to be the beginning of a stop string.
class StopFilter {
 public:
  explicit StopFilter(std::span<const std::string> stops) : stops_(stops.begin(), stops.end()) {}
  // The text that may be shown now; sets stopped() once a stop string has come. Of several, the
  // one that ends first counts, so that the result does not depend on how the text was cut.
  std::string push(std::string_view text);
  std::string finish();  // the text held back, when nothing more comes
  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }  // the string that came

 private:
  std::vector<std::string> stops_;
  std::string held_, stop_;
  bool stopped_ = false;
};

class Generation {
 public:
  // `history` and `prompt` are the tokens before the generated ones, in that order. `weights` must
  // outlive the generation. `grammar` may be null. Throws OptionError for sampler options that make
  // no sense.
  Generation(const Weights& weights, const GenerateOptions& options, std::span<const Token> history,
             std::span<const Token> prompt, std::shared_ptr<const Grammar> grammar = nullptr);

  const Sampler& sampler() const { return sampler_; }
  // Of the next draw. Where only some tokens may be drawn (a grammar, min_tokens), the mask is that
  // of the last update_mask().
  SampleContext context() const { return {tokens_, prompt_tokens_, mask_}; }
  // Must be called before each draw of a generation that has_mask(). Takes microseconds to
  // milliseconds, so that a caller may want to do it while a device works. Ends the generation
  // where the mask would cost more than grammar.h allows.
  void update_mask();
  bool has_mask() const { return grammar_ || min_tokens_ > 0; }
  // All that were sampled, an end token included.
  std::span<const Token> generated() const { return std::span(tokens_).subspan(prompt_tokens_); }

  // Appends the next token and returns the text that may be shown now: whole characters that cannot
  // become a stop string. Must not be called after the end.
  std::string push(Token token);
  // Ends the generation for a reason that lies outside: context or cancelled.
  void end(EndReason reason) { end_ = reason; }
  std::optional<EndReason> ended() const { return end_; }
  const std::string& failure() const { return failure_; }     // why it ended with EndReason::failed
  const std::string& stop() const { return filter_.stop(); }  // the stop string that came
  std::string finish();                                       // the text held back, once ended

 private:
  void fail(std::string why);
  bool is_end_token(Token token) const;
  template <typename F>
  void for_each_end_token(F f) const;

  const Weights* weights_;
  Sampler sampler_;
  StopFilter filter_;
  Utf8Stream characters_;
  std::vector<Token> tokens_;  // history, prompt, generated
  size_t prompt_tokens_;       // history and prompt
  size_t max_tokens_, min_tokens_;
  std::vector<Token> stop_tokens_;
  bool ignore_end_;
  std::optional<GrammarState> grammar_;
  std::vector<uint32_t> mask_;  // empty: every token may be drawn
  std::optional<EndReason> end_;
  std::string failure_;
};

}  // namespace ridge
