// From a prompt to text: chunks of the prompt, then token after token until something ends it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/account/ledger.h"
#include "engine/runner.h"
#include "engine/sampling/sampler.h"

namespace ridge {

struct GenerateOptions {
  SamplerOptions sampler;
  int max_tokens = 256;
  std::vector<std::string> stops;  // text that ends the generation and is not shown
  bool ignore_end = false;         // go on past the model's own end tokens
  bool profile = false;            // time operators
};

enum class EndReason : uint8_t { end_token, stop_string, length, context };
std::string_view end_reason_name(EndReason reason);  // "end", "stop", "length", "context"

struct Generated {
  std::vector<Token> tokens;     // all that were sampled, an end token included
  std::vector<Sampled> sampled;  // the same with their log probabilities
  std::string text;
  EndReason end = EndReason::length;
  Ledger prompt, generation;                               // the steps' work and times
  Profile prompt_profile{true}, generation_profile{true};  // empty unless asked for
  double first_token_s = 0;  // from the call to the first sampled token
  double generation_s = 0;   // from there to the last
};

// Appends `prompt` (at least one token) to `sequence` and generates. `show` gets text as soon as it
// is whole characters and cannot become a stop string. `history` is what lies in the sequence
// already, for the repetition penalty; it may be empty.
Generated generate(Runner& runner, CachedSequence& sequence, std::span<const Token> prompt,
                   const GenerateOptions& options,
                   const std::function<void(std::string_view)>& show,
                   std::span<const Token> history = {});

// Runs `tokens` after what `sequence` holds, in chunks of the runner's step; of the last `logits`
// tokens of the last chunk rows are wanted. Records every step.
void prefill(Runner& runner, CachedSequence& sequence, std::span<const Token> tokens, int logits,
             Ledger& ledger);

// Holds back text that may turn out to be the beginning of a stop string.
class StopFilter {
 public:
  explicit StopFilter(std::span<const std::string> stops) : stops_(stops.begin(), stops.end()) {}
  // What may be shown now; sets stopped() once a stop string has come.
  std::string push(std::string_view text);
  std::string finish();  // what was held back, when nothing more comes
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace ridge
