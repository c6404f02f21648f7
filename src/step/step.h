// One forward pass, described by the sequences that it serves.
#pragma once

#include <vector>

#include "step/plan.h"

namespace ridge {

// `count` sequences, each with `fresh` new tokens after `past` cached ones. Decode: fresh = 1.
// Speculative verification: fresh = 1 + drafts. Prefill: fresh = prompt. A later chunk of a prompt:
// fresh = chunk, past = the tokens before it. A mixed step (chunked prefill beside decode) is a
// list of several.
struct Sequences {
  double count = 1;
  double fresh = 1;
  double past = 0;
  double logits = 1;  // tokens per sequence whose logits are computed
};

// The steps that prefill `count` prompts: chunks of plan.chunk tokens after the part found in the
// prefix cache. At least one token is always computed.
std::vector<Sequences> prefill_steps(const Plan& plan, double prompt, double count);

}  // namespace ridge
