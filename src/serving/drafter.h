// Speculative decoding: where drafts come from, and how many are worth their verification.
#pragma once

#include <span>
#include <vector>

#include "serving/request.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

// A sequence that is about to decode.
struct DraftRequest {
  RequestId id = 0;
  std::span<const Token> tokens;         // all of it: prompt and drawn tokens
  int most = 0;                          // drafts that may be proposed
  std::vector<Token>* drafts = nullptr;  // to be filled, in order; empty on entry
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Proposes drafts for the sequences of one step, none where they are not worth it.
  virtual void propose(std::span<const DraftRequest> requests) = 0;
  // Of `proposed` drafts (at least one) the first `accepted` were drawn.
  virtual void verified(RequestId id, int proposed, int accepted) = 0;
  virtual void remove(RequestId id) = 0;  // the sequence has ended
  // Whether the last propose() cost what it costs step after step, so that its time tells something
  // about the next: not while a model reads what it has missed.
  virtual bool cost_was_typical() const { return true; }
};

}  // namespace ridge
