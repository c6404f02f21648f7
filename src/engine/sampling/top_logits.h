// What a sampler needs of a row of logits, found where the logits are: the largest of them and the
// sums of exponentials. C++17 without CUDA: kernels and the engine share it.
#pragma once

#include <cstdint>
#include <vector>

namespace ridge {

constexpr int kMaxCandidates = 256, kMaxRequestedTokens = 256;

struct Candidate {
  float logit;
  int32_t token;
  bool operator<(const Candidate& other) const {  // a total order: best first
    return logit != other.logit ? logit > other.logit : token < other.token;
  }
};

struct TopLogitsRequest {
  int count = 1;                // of the best: 1 to kMaxCandidates
  float scale = 1;              // 1 / temperature, of the second sum
  std::vector<int32_t> tokens;  // whose logits are wanted besides: at most kMaxRequestedTokens
};

struct TopLogits {
  bool broken = false;  // a logit is NaN or +inf; then nothing else is given
  double log_sum = 0;   // log of the sum of exp(logit): logit - log_sum is a log probability
  double scaled = 0;    // sum of exp(scale (logit - largest)), to kSumError
  std::vector<Candidate>
      candidates;  // TopLogitsRequest::count of them or the whole vocabulary, in order
  std::vector<float> requested;  // logits of TopLogitsRequest::tokens
};

// Relative error of sums over a vocabulary, host's and device's together: sums of 128 floats one
// after the other err by 127 x 2^-24 = 7.6e-6 at most, on the device 45 by 2.7e-6; exponents of up
// to 17 (the rest weighs 1 % of 300 k tokens at most) by 2 x 2^-24 of themselves, 2e-6, on the
// device 4 x; exponentials by 2 ulp, 5e-7. Together 1.7e-5.
constexpr double kSumError = 2e-5;

}  // namespace ridge
