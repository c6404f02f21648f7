// Limits of the routing kernels.
#pragma once

namespace ridge::cuda {

constexpr int kMaxExperts = 512;       // 16 in a lane
constexpr int kMaxTopK = 32;           // one lane each
constexpr int kMaxRoutingGroups = 32;  // one lane each

}  // namespace ridge::cuda
