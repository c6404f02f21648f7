// Signals that would end the program wait until this scope ends: for the moments in which a file
// exists that nobody else would remove. One scope at a time.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>

namespace ridge {

class HeldSignals {
 public:
  HeldSignals() {
    struct sigaction action {};
    action.sa_handler = [](int signal) { arrived()[place_of(signal)] = true; };
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      arrived()[i] = false;
      sigaction(kSignals[i], &action, &before_[i]);
    }
  }
  ~HeldSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      if (arrived()[i]) raise(kSignals[i]);
    }
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
  using Arrived = std::array<std::atomic<bool>, kSignals.size()>;
  static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

  static size_t place_of(int signal) { return signal == SIGINT ? 0 : signal == SIGTERM ? 1 : 2; }
  static Arrived& arrived() {
    static Arrived flags;
    return flags;
  }

  std::array<struct sigaction, kSignals.size()> before_;
};

}  // namespace ridge
