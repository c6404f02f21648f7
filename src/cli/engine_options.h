// The options of every command that executes a model, and the runner they ask for.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/account/ledger.h"
#include "engine/account/roof_system.h"
#include "engine/runner/runner.h"

namespace ridge {

struct EngineOptions {
  std::string model;  // empty: the one inside the program
  std::string device = "cpu";
  std::string weights;  // "random:SEED"; empty: the model's own
  std::string format;   // of random weights and on CUDA; empty: bf16, on CUDA as released
  std::string kv;       // empty: f16, on CUDA bf16
  int threads = 0, page_tokens = 16;
  int chunk = 0;  // 0: by the device, see chunk_of
  bool invariant = false;
  int ranks = 0;  // 0: tp * pp
  int tp = 0, pp = 1, ep = 1;
  double rank_deadline_s = 120;
  std::shared_ptr<RankLinks> links = nullptr;  // of ranks that were started
};

// The seed of --weights "random:SEED". Throws OptionError.
uint64_t random_seed(const std::string& weights);

// Starts the ranks that the options ask for, where that is more than one: before the program has
// other threads. Ranks other than the first do not return. make_runner() does it where it was not
// done. Throws OptionError where the numbers do not fit together.
void start_ranks(EngineOptions& options);

void add_engine_options(CLI::App& command, EngineOptions& options);

int chunk_of(const EngineOptions& options);  // prompt tokens of a step
// Loads the weights and makes a runner. Of `bounds` cache_tokens, max_sequences and max_logit_rows
// are used; everything else comes from the options. Throws Error.
std::unique_ptr<Runner> make_runner(const EngineOptions& options, const RunnerOptions& bounds);
// The same in steps, for who must see the weights before choosing bounds. runner_options() checks
// the options.
RunnerOptions runner_options(const EngineOptions& options, RunnerOptions bounds);
Weights load_engine_weights(const EngineOptions& options);
std::unique_ptr<Runner> make_runner(const EngineOptions& options, Weights weights,
                                    const RunnerOptions& wanted);

// A plain prompt as a model reads it: with the beginning token where its tokenizer adds one.
std::vector<Token> text_prompt(const Tokenizer& tokenizer, std::string_view text);

// The machine the run is held against: engine/account/roof_system.h.
System roof_system(const EngineOptions& options, Runner& runner);

}  // namespace ridge
