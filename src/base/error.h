// The one error a user sees: a line that says what was wrong and what would be right.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ridge {

// Thrown at the edge (readers, command line), caught in main, which prints it and exits 2.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}

  template <typename... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// The same, where the fault is one option's: a form can then show the line beside its field.
class OptionError : public Error {
 public:
  OptionError(std::string option, const std::string& message)
      : Error(message), option_(std::move(option)) {}
  const std::string& option() const { return option_; }  // without dashes: "batch"

 private:
  std::string option_;
};

}  // namespace ridge
