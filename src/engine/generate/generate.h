// From a prompt to text, one request at a time: chunks of the prompt, then token after token until
// something ends it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/account/ledger.h"
#include "engine/generate/generation.h"
#include "engine/runner/runner.h"

namespace ridge {

struct Generated {
  std::vector<Token> tokens;     // all that were sampled, an end token included
  std::vector<Sampled> sampled;  // the same with their log probabilities, where requested
  std::string text;
  EndReason end = EndReason::length;
  Ledger prompt, generation;                               // the steps' work and times
  Profile prompt_profile{true}, generation_profile{true};  // empty without GenerateOptions::profile
  double first_token_s = 0;  // from the call to the first sampled token
  double generation_s = 0;   // from there to the last
};

// Appends `prompt` (at least one token) to `sequence` and generates. `show` gets text as soon as it
// is whole characters and cannot become a stop string. `history` is what lies in the sequence
// already, for the penalties; it may be empty. After an exception the sequence holds the tokens of
// the steps that were completed, and nothing else.
Generated generate(Runner& runner, KvSequence& sequence, std::span<const Token> prompt,
                   const GenerateOptions& options,
                   const std::function<void(std::string_view)>& show,
                   std::span<const Token> history = {});

// Runs `tokens` after what `sequence` holds, in chunks of the runner's step. Rows of logits are
// wanted of the last `logits` tokens, all of the last chunk. Records every step with the time that
// run() took. False where `cancelled` became true first. Throws Error when the pages do not
// suffice.
bool prefill(Runner& runner, KvSequence& sequence, std::span<const Token> tokens, int logits,
             Ledger& ledger, const std::atomic<bool>* cancelled = nullptr);

}  // namespace ridge
