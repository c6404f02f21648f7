// What a client wants of the serving engine, and what it gets back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/generate/generation.h"
#include "engine/sampling/sampler.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

class Grammar;  // text/grammar/grammar.h

using RequestId = uint64_t;

struct ServingRequest {
  RequestId id = 0;           // ServingEngine::new_id()
  std::vector<Token> prompt;  // at least one token
  // Sampler, max_tokens, min_tokens, stop strings and tokens, ignore_end. `cancelled` and `profile`
  // are not used: ServingEngine::cancel().
  GenerateOptions generate;
  int priority = 0;        // the lower number runs first
  std::string cache_salt;  // cached prefixes are shared among requests with equal salts only
  std::shared_ptr<const Grammar> grammar;  // null: any text
  // Log probabilities of the prompt's own tokens, with this many of the most probable at each
  // position. Such a request computes its whole prompt: it does not read the prefix cache.
  int prompt_logprobs = kNoLogprobs;
  std::optional<int> max_drafts;  // of a step; none: ServingOptions::max_drafts
};

// What one step gave one request. The last output of a request has `end` set; every submitted
// request gets exactly one such output.
struct RequestOutput {
  RequestId id = 0;
  std::vector<Sampled> sampled;  // the tokens of this step; several where drafts were accepted
  std::string text;              // whole characters that cannot become a stop string
  std::optional<EndReason> end;
  std::string stop;   // end == stop_string: the string that matched
  std::string error;  // end == failed: why
  // In the first output of a request.
  int cached_tokens = 0;                // of the prompt, found in the prefix cache
  std::vector<Sampled> prompt_sampled;  // prompt_logprobs: one for each prompt token but the first
};

}  // namespace ridge
