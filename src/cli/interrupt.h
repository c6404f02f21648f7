// Ctrl-C ends a generation, not the program: the text made so far is complete and accounted for.
#pragma once

#include <signal.h>

#include <atomic>

namespace ridge {

constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, as shells report it

// While one lives, the first SIGINT sets flag() and the second ends the program as usual. One at a
// time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  const std::atomic<bool>& flag() const;

 private:
  struct sigaction before_ {};
};

}  // namespace ridge
