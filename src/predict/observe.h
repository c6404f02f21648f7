// What a person saw, in the words of the command line, as an Observation.
#pragma once

#include <span>
#include <string>

#include "predict/explain.h"
#include "predict/request.h"

namespace ridge {

// As typed; empty: not observed.
struct ObservedOptions {
  std::string observed, batch, itl, ttft, output;
  std::string dram_active, tensor_active, gpu_util, kv_usage, waiting, power;
};

struct ObservedOption {
  const char* name;
  const char* letter;
  const char* help;
  std::string ObservedOptions::*value;
};
std::span<const ObservedOption> observed_options();

// Throws OptionError.
Observation make_observation(const ObservedOptions& options);

// explain(), with a line of evidence where the context was a guess.
Explanation explain(const Request& request, const Observation& observation, bool context_given);

}  // namespace ridge
