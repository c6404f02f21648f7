// Lowering: a batch of sequences -> the operators of one forward pass on one device. The same list
// is timed by the predictor and executed by the engine.
#pragma once

#include <span>
#include <vector>

#include "cost/work.h"
#include "step/rank.h"

namespace ridge {

// `count` sequences, each bringing `fresh` tokens after `past` cached ones. Decode: fresh = 1;
// speculative verify: fresh = 1 + k; prefill: fresh = prompt; a chunk after its prefix: both.
// A mixed step (chunked prefill beside decode) holds several.
struct Sequences {
  double count = 1;
  double fresh = 1;
  double past = 0;
  double logits = 1;  // tokens per sequence that reach the head
};

// Replaces `ops` by the step's operators: all layers, whichever pipeline stage holds them, for the
// sequences of one replica (and of one micro-batch, with pipeline stages).
void lower(const Rank& rank, std::span<const Sequences> batch, std::vector<Op>& ops);

// The steps that prefill `count` prompts: chunks of plan.chunk tokens after the part found in the
// prefix cache. At least one token is always computed.
std::vector<Sequences> prefill_steps(const Plan& plan, double prompt, double count);

}  // namespace ridge
