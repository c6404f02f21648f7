// The options of a serving engine, and the runners and bounds that they ask for.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "cli/engine_options.h"
#include "serving/serving_engine.h"

namespace ridge {

struct ServingSetup {
  EngineOptions engine;
  int max_sequences = 0;  // that run at once; 0: 32, on CUDA 256
  int max_waiting = 1024;
  int context = 0;       // tokens of one request; 0: the model's own
  int kv_tokens = 0;     // of the KV cache; 0: by memory
  std::string draft;     // model; empty: none
  int draft_tokens = 0;  // 0: 4 with a draft model, else no speculation
  bool no_prefix_cache = false;
};

void add_serving_options(CLI::App& command, ServingSetup& setup);

// Throws OptionError for options that can be seen to be wrong before anything is loaded.
void check_serving_setup(const ServingSetup& setup);
// Loads the models. Throws Error.
std::pair<std::unique_ptr<Runner>, ServingOptions> make_serving_engine(const ServingSetup& setup);

// Tokens of a KV cache of one layer group: as many as all sequences can fill, at most what memory
// leaves beside the weights, at least one context. Memory holds every token `kv_copies` times.
int default_kv_tokens(const Weights& weights, const RunnerOptions& bounds, bool cuda, int context,
                      int kv_copies = 1);

}  // namespace ridge
