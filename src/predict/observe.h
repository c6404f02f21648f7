// What a person saw, in the words of the command line, as an Observation.
#pragma once

#include <span>
#include <string>
#include <string_view>

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

// "28ms" -> 0.028. A number without a unit is refused, 0 aside: latencies are given in seconds as
// often as in milliseconds. Throws Error naming `what`.
double parse_latency(std::string_view text, std::string_view what);

// Throws OptionError.
Observation make_observation(const ObservedOptions& options);

// explain(), with a line of evidence where the context was a guess.
Explanation explain(const Request& request, const Observation& observation, bool context_given);

}  // namespace ridge
