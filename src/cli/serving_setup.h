// The options of a serving engine, and the runners and bounds that they ask for.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/engine_options.h"
#include "ranks/rank_grid.h"
#include "serving/replicas.h"

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
  int replicas = 1;  // of the model, each with its own engine (data parallel)
  std::shared_ptr<StepPace> pace = nullptr;  // of all replicas together, for tests; null: none
};

void add_serving_options(CLI::App& command, ServingSetup& setup);

// Throws OptionError for options that can be seen to be wrong before anything is loaded.
void check_serving_setup(const ServingSetup& setup);

// Starts the ranks of all replicas, where a replica has more than one: before the program has other
// threads. Returns the engine options of each replica.
std::vector<EngineOptions> start_replicas(const ServingSetup& setup);
// Loads the models, a replica for each of `engines`. Throws Error.
std::vector<ReplicaGroup::Parts> make_serving_engines(const ServingSetup& setup,
                                                      const std::vector<EngineOptions>& engines);

// Bytes of the host's memory that the KV caches of all replicas may have together: half of what is
// left of `free` when every replica has copied `weights_each` on loading. The other half stays for
// mapped weights, buffers, drafts and other programs. Throws OptionError where the weights of
// several replicas do not fit.
double replica_kv_memory(double free, double weights_each, int replicas);

// The same for ranks of one replica on several hosts, which copy `weights` on loading, all
// together. Every rank holds the same share of the weights and of the cache, so the host with the
// least memory for each of its ranks decides.
double hosts_kv_memory(std::span<const RankHost> hosts, double weights);

// Tokens of a KV cache: as many as all sequences can fill, at most what fits into `memory` bytes,
// at least one context. Memory holds every token `kv_copies` times: ranks may hold the same heads,
// and replicas share the memory.
int default_kv_tokens(const Architecture& model, const RunnerOptions& bounds, int context,
                      double memory, int kv_copies);

}  // namespace ridge
