// How a test waits for an event that it can only look for: in another process, behind a socket, in
// a counter. What a test can be notified of it waits for with a condition variable or a future.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string_view>
#include <thread>

namespace ridge {

// How long a test waits for what must come: no machine is so slow, so only a hang takes so long.
inline constexpr std::chrono::seconds kPatience{300};

// Looks every millisecond until `has_come()`. `event` completes "waited for": "both replicas run".
template <typename HasCome>
testing::AssertionResult wait_until(std::string_view event, HasCome has_come) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!has_come()) {
    if (std::chrono::steady_clock::now() > end) {
      return testing::AssertionFailure()
             << "waited " << kPatience.count() << " s for this in vain: " << event;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return testing::AssertionSuccess();
}

}  // namespace ridge
