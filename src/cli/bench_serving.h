// `ridge bench --serve`: the scheduler against the steps it is made of.
#pragma once

#include <vector>

#include "cli/command.h"
#include "cli/engine_options.h"

namespace ridge {

struct ServingBenchOptions {
  std::vector<int> clients;
  int prompt = 512, tokens = 32;  // of each request
  int rounds = 3;                 // requests of each client
};

// A closed loop in this process, without HTTP: each client sends its next request when the one
// before has ended. The ceiling is the output tokens/s of C clients if every step took what it
// takes alone: C O / (O d(C) + C p), with O tokens a request, d(C) the median step of C sequences
// and p the time of one prompt, both measured before in the same call.
void bench_serving(const EngineOptions& engine, const ServingBenchOptions& options,
                   const Global& global);

}  // namespace ridge
