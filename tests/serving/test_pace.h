// The pace of all engines that tests make: RIDGE_TEST_PACE is the least time of a step ("20ms"), so
// that the suites can be run as on a slow machine.
#pragma once

#include <cstdlib>
#include <memory>
#include <utility>

#include "base/units.h"
#include "serving/serving_engine.h"

namespace ridge {

// Null where the variable is unset or empty.
inline std::shared_ptr<StepPace> test_pace() {
  const char* const least = std::getenv("RIDGE_TEST_PACE");
  if (least == nullptr || *least == 0) return nullptr;
  auto pace = std::make_shared<StepPace>();
  pace->at_least(parse_latency(least, "RIDGE_TEST_PACE"));
  return pace;
}

// The options with that pace, where they have none of their own.
inline ServingOptions paced(ServingOptions options) {
  if (!options.pace) options.pace = test_pace();
  return options;
}

}  // namespace ridge
