// The logit of a token that cannot be sampled is -kInfinity.
#pragma once

#include <limits>

namespace ridge {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace ridge
