// What a sampler needs of a row of logits, found where the logits lie: the largest of them, sums of
// exponentials, and a draw over the whole row. C++17 without CUDA: kernels and the engine share it.
#pragma once

#include <cstdint>
#include <vector>

namespace ridge {

constexpr int kMaxCandidates = 256, kMaxRequestedTokens = 256;

struct Candidate {
  float logit;
  int32_t token;
  // A total order: the larger logit first, the lower id among equals.
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : token < other.token;
  }
};

struct TopLogitsRequest {
  int count = 0;                // largest logits wanted, up to kMaxCandidates; 0: no sums either
  float scale = 1;              // 1 / temperature: of the scaled sum and of the draw
  std::vector<int32_t> tokens;  // whose logits are wanted besides: at most kMaxRequestedTokens
  bool draw = false;            // draw a token from softmax(scale * logits) (gumbel.h)
  uint64_t key = 0;             // of the draw: gumbel_key(seed, position)
};

struct TopLogits {
  bool broken = false;    // a logit is NaN or +inf; then nothing else is given
  double log_sum = 0;     // log of the sum of exp(logit): logit - log_sum is a log probability
  double scaled_sum = 0;  // sum of exp(scale (logit - largest)), to kSumError
  std::vector<Candidate> candidates;  // the `count` largest or the whole vocabulary, in order
  std::vector<float> requested;       // logits of TopLogitsRequest::tokens
  Candidate chosen = {0, 0};          // the drawn token, or without a draw the largest logit's
};

// Relative error of sums over a vocabulary, host's and device's together. Sums of 128 floats one
// after the other err by at most 127 x 2^-24 = 7.6e-6, on the device 45 by 2.7e-6. Exponents of up
// to 17 (the rest weighs 1 % of 300 k tokens at most) err by 2 x 2^-24 of themselves, 2e-6, on the
// device by 4 x 2^-24. Exponentials err by 2 ulp, 5e-7. Together 1.7e-5.
constexpr double kSumError = 2e-5;

}  // namespace ridge
