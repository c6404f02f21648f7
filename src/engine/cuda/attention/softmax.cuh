// Constants of the online softmax, in both attention kernels and in the decode kernel.
#pragma once

namespace ridge::cuda {

// Scores are exponentiated in base 2: e^s = 2^(s log2 e).
constexpr float kLog2e = 1.4426950408889634f;
// The score of a masked key, and the maximum before the first key. Finite: the difference of two
// is zero and not NaN.
constexpr float kMaskedScore = -1e30f;

}  // namespace ridge::cuda
