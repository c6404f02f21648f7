// What a command that measures says while it does so.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

namespace ridge {

// One line that is overwritten on a terminal; nothing elsewhere but a start and an end.
class ProgressLine {
 public:
  explicit ProgressLine(std::string device) : device_(std::move(device)), tty_(isatty(2) != 0) {
    fmt::print(stderr, "Measuring {} ...{}", device_, tty_ ? "" : "\n");
  }
  ~ProgressLine() {
    if (tty_) fmt::print(stderr, "\r\x1b[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void operator()(const std::string& step) const {
    if (tty_) fmt::print(stderr, "\r\x1b[KMeasuring {}: {}", device_, step);
  }

 private:
  std::string device_;
  bool tty_;
};

}  // namespace ridge
