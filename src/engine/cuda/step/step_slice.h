// What a step is made of: tokens of sequences, the pages of their cache, and the bounds of all of
// them.
#pragma once

namespace ridge::cuda {

// What the steps of a run may hold at most. All device memory is allocated from these bounds.
struct StepBounds {
  int tokens = 512;       // of one step
  int sequences = 64;     // of one step
  int logit_rows = 64;    // of one step
  int decode_steps = 16;  // of one decode() launch
};
// The sequences of one step may list this many times the pages of the cache: pages may be shared,
// and a shared page counts for each of its sequences.
constexpr int kMaxSharing = 4;

// A token of a step: an id, or at -1 - r the token that row r of the last sample() chose.
using TokenInput = int;

// One token of a decode kernel's step: `past` of its sequence are cached before the step, `first`
// is the step's first row of its sequence (rows of one sequence follow each other and lie in one
// page of 16), `pages` cover its position.
struct DecodeRow {
  TokenInput token = 0;
  int past = 0, first = 0;
  const int* pages = nullptr;
  int page_count = 0;
};

// One sequence's tokens of a step, after `past` cached ones; logits of the last `logits` of them
// are wanted.
struct StepSlice {
  const TokenInput* tokens = nullptr;
  int count = 0, past = 0;
  const int* pages = nullptr;  // of 16 tokens, up to the last token's
  int page_count = 0, logits = 0;
};

// A page of 16 tokens and where it is copied to, in every layer.
struct KernelPageCopy {
  int from = 0, to = 0;
};

}  // namespace ridge::cuda
