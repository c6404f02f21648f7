#include "cli/step_pace_option.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr const char* kStepPace = "--step-pace";

// "step 3" -> 3. Throws Error.
int steps_of(std::string_view command) {
  const std::string_view number = command.substr(command.find(' ') + 1);
  int steps = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), steps);
  if (error != std::errc() || end != number.end() || steps < 1) {
    throw Error("{}: '{}': not a number of steps", kStepPace, command);
  }
  return steps;
}

// Throws Error where it is no command.
void apply_command(const std::string& command, StepPace& pace) {
  if (command == "hold") return pace.hold();
  if (command == "go") return pace.go();
  if (command.starts_with("step ")) return pace.allow(steps_of(command));
  pace.at_least(parse_latency(command, kStepPace));
}

void follow_commands(StepPace& pace) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      apply_command(line, pace);
      std::fputs(fmt::format("pace: {}\n", line).c_str(), stdout);
      std::fflush(stdout);
    } catch (const Error& error) {
      std::fputs(fmt::format("ridge: {}\n", error.what()).c_str(), stderr);
    }
  }
  pace.go();
}

}  // namespace

std::shared_ptr<StepPace> make_step_pace(const std::string& what) {
  if (what.empty()) return nullptr;
  auto pace = std::make_shared<StepPace>();
  if (what == "stdin") {
    std::thread([pace] { follow_commands(*pace); }).detach();  // nothing ends a read but its input
  } else {
    pace->at_least(parse_latency(what, kStepPace));
  }
  return pace;
}

}  // namespace ridge
