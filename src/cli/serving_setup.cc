#include "cli/serving_setup.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "engine/ranks/cut_weights.h"
#include "machine/nvml.h"
#include "ranks/mpi.h"

namespace ridge {
namespace {

constexpr int kDraftTokens = 4;  // of a draft model, unless --speculate says otherwise

bool on_cuda(const ServingSetup& setup) { return setup.engine.device == "cuda"; }

int draft_tokens(const ServingSetup& setup) {
  if (setup.draft_tokens > 0) return setup.draft_tokens;
  return setup.draft.empty() ? 0 : kDraftTokens;
}

double kv_element_bytes(KvStorage storage) {
  switch (storage) {
    case KvStorage::f32:
      return 4;
    case KvStorage::f16:
    case KvStorage::bf16:
      return 2;
    case KvStorage::int8:
    case KvStorage::fp8:
      return 1.125;  // with a scale for each head
  }
  return 4;
}

// Bytes that the KV cache of a model on GPUs may have, of all ranks together. `hosts` have as many
// GPUs as this one.
double gpu_kv_memory(const Weights& weights, std::span<const RankHost> hosts) {
  const std::vector<GpuFound> gpus = detect_gpus();
  if (gpus.empty()) return 0;
  // Beside the weights, in bf16 at most: steps' buffers, graphs and the CUDA context.
  constexpr double kShare = 0.9, kBuffers = 4e9;
  // Where ranks share a GPU, each has a part of it; all ranks hold as much as the poorest.
  double ranks = 0, gpus_each = 1;
  for (const RankHost& host : hosts) {
    ranks += host.ranks;
    gpus_each = std::min(gpus_each, double(gpus.size()) / host.ranks);
  }
  return ranks * gpus_each * (kShare * gpus.front().memory - kBuffers) -
         2 * parameters(weights.model);
}

RunnerOptions serving_bounds(const ServingSetup& setup) {
  RunnerOptions bounds;
  bounds.max_sequences = setup.max_sequences > 0 ? setup.max_sequences : on_cuda(setup) ? 256 : 32;
  bounds.max_logit_rows = bounds.max_sequences * (1 + draft_tokens(setup));
  bounds = runner_options(setup.engine, bounds);
  // Every running sequence must have a place in a step.
  bounds.max_tokens = std::max(bounds.max_tokens, bounds.max_logit_rows);
  return bounds;
}

std::unique_ptr<Runner> make_draft(const ServingSetup& setup, const Runner& target) {
  if (setup.draft.empty()) return nullptr;
  EngineOptions engine = setup.engine;
  engine.model = setup.draft;
  engine.ranks = 0;  // the draft is small: the leader runs it alone
  engine.tp = engine.pp = engine.ep = 1;
  engine.links = nullptr;
  Weights weights = load_engine_weights(engine);
  if (weights.architecture.vocab != target.weights().architecture.vocab) {
    throw OptionError("draft", fmt::format("--draft {}: its vocabulary has {} tokens, the model's "
                                           "{}",
                                           setup.draft, weights.architecture.vocab,
                                           target.weights().architecture.vocab));
  }
  return make_runner(engine, std::move(weights), target.options());
}

}  // namespace

double replica_kv_memory(double free, double weights_each, int replicas) {
  const double left = free - replicas * weights_each;
  if (left < 0 && replicas > 1) {
    throw OptionError("dp", fmt::format("--dp {}: each replica copies {} of weights, and {} of "
                                        "memory are free",
                                        replicas, pretty_bytes(weights_each), pretty_bytes(free)));
  }
  return std::max(0.0, left) / 2;
}

double hosts_kv_memory(std::span<const RankHost> hosts, double weights) {
  double ranks = 0, of_a_rank = std::numeric_limits<double>::infinity();
  for (const RankHost& host : hosts) ranks += host.ranks;
  for (const RankHost& host : hosts) {
    const double memory = replica_kv_memory(host.free_bytes, weights * host.ranks / ranks, 1);
    of_a_rank = std::min(of_a_rank, memory / host.ranks);
  }
  return of_a_rank * ranks;
}

int default_kv_tokens(const Architecture& model, const RunnerOptions& bounds, int context,
                      double memory, int kv_copies) {
  const double token_bytes =
      double(kv_copies) * model.layer_count() * model.cache_columns() * kv_element_bytes(bounds.kv);
  const double room = memory / token_bytes;
  const double useful = double(bounds.max_sequences) * context;
  const double tokens = std::clamp(std::min(room, useful), double(context), double(1 << 30));
  const double page = bounds.page_tokens;
  return static_cast<int>(std::ceil(tokens / page) * page);
}

void add_serving_options(CLI::App& command, ServingSetup& setup) {
  const char* kGroup = "Serving";
  command
      .add_option("--max-sequences", setup.max_sequences,
                  "Requests that run at once (32, with --device cuda 256)")
      ->check(CLI::Range(1, 4096))
      ->group(kGroup);
  command.add_option("--max-waiting", setup.max_waiting, "Requests that may wait; more get 429")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("-c,--context", setup.context,
                  "Tokens of one request, prompt and answer (the model's own limit)")
      ->check(CLI::Range(1, 1 << 24))
      ->group(kGroup);
  command
      .add_option("--kv-tokens", setup.kv_tokens,
                  "Tokens that the KV cache holds (by the free memory)")
      ->check(CLI::Range(1, 1 << 30))
      ->group(kGroup);
  command.add_option("--draft", setup.draft, "Model that drafts tokens: speculative decoding")
      ->group(kGroup);
  command
      .add_option("--speculate", setup.draft_tokens,
                  "Drafted tokens of a step at most; without --draft from the text itself")
      ->check(CLI::Range(1, 16))
      ->group(kGroup);
  command
      .add_flag("--no-prefix-cache", setup.no_prefix_cache,
                "Compute every prompt, also where its beginning was seen before")
      ->group(kGroup);
  add_engine_options(command, setup.engine);
  command
      .add_option("--dp", setup.replicas,
                  "Replicas of the model (CPU), each with its own ranks and KV cache")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group("Ranks");
}

void check_serving_setup(const ServingSetup& setup) {
  serving_bounds(setup);
  if (setup.replicas == 1) return;
  if (on_cuda(setup)) {
    throw OptionError("dp", fmt::format("--dp {}: replicas run on the CPU; on GPUs start a server "
                                        "for each, with CUDA_VISIBLE_DEVICES",
                                        setup.replicas));
  }
  if (mpi_processes() > 1) {
    throw OptionError("dp", fmt::format("--dp {}: replicas are of one host; under MPI start a "
                                        "server for each",
                                        setup.replicas));
  }
}

std::vector<EngineOptions> start_replicas(const ServingSetup& setup) {
  std::vector<EngineOptions> engines;
  for (int r = 0; r < setup.replicas; ++r) {
    const ReplicaProcessors own(r, setup.replicas);
    start_ranks(engines.emplace_back(setup.engine));
  }
  return engines;
}

namespace {

// Before the first replica has loaded more than `weights`.
double kv_memory(const ServingSetup& setup, const Weights& weights, const RankGrid& grid,
                 std::span<const RankHost> hosts) {
  const RankHost here{grid.ranks(), 0};
  if (on_cuda(setup)) return gpu_kv_memory(weights, hosts.empty() ? std::span(&here, 1) : hosts);
  // Every replica copies on loading: one rank all of it, as the first has done already, several
  // their parts.
  const double copied = weights.copied_bytes;
  double free = free_bytes() + (grid.ranks() == 1 ? copied : 0),
         each = cpu_copied_bytes(weights, grid) + copied;
  if (!setup.engine.weights.empty()) {
    each += weights.bytes;  // random ones are not mapped: every replica makes its own
    if (grid.ranks() == 1) free += weights.bytes;  // the first replica's are there
  }
  return hosts.empty() ? replica_kv_memory(free, each, setup.replicas)
                       : hosts_kv_memory(hosts, each);
}

// The engine of setup.engine's replica.
ReplicaGroup::Parts make_replica(const ServingSetup& setup) {
  RunnerOptions bounds = serving_bounds(setup);
  Weights weights = load_engine_weights(setup.engine);
  const int own = weights.architecture.max_context;
  ServingOptions options;
  options.max_context = setup.context > 0 ? std::min(setup.context, own) : own;
  options.max_waiting = setup.max_waiting;
  options.max_drafts = draft_tokens(setup);
  options.prefix_cache = !setup.no_prefix_cache;
  options.pace = setup.pace;
  // KV heads fewer than ranks are held by several.
  const RankLinks* links = setup.engine.links.get();
  const RankGrid grid = links ? links->grid : RankGrid();
  const std::span<const RankHost> hosts = links ? links->hosts : std::span<const RankHost>();
  if (links) options.lost = links->lost;
  const int copies = setup.replicas * std::max(1, grid.tp / weights.architecture.kv_heads);
  bounds.max_context = options.max_context;
  bounds.cache_tokens = setup.kv_tokens > 0
                            ? setup.kv_tokens
                            : default_kv_tokens(weights.architecture, bounds, options.max_context,
                                                kv_memory(setup, weights, grid, hosts), copies);
  std::unique_ptr<Runner> runner = make_runner(setup.engine, std::move(weights), bounds);
  options.draft = make_draft(setup, *runner);
  try {
    options.system = roof_system(setup.engine, *runner);
    options.stack = engine_stack(*options.system);
  } catch (const Error&) {  // the atlas does not know this GPU: steps have no prediction
  }
  return {std::move(runner), std::move(options)};
}

}  // namespace

std::vector<ReplicaGroup::Parts> make_serving_engines(const ServingSetup& setup,
                                                      const std::vector<EngineOptions>& engines) {
  std::vector<ReplicaGroup::Parts> replicas;
  for (size_t r = 0; r < engines.size(); ++r) {
    const ReplicaProcessors own(int(r), int(engines.size()));
    ServingSetup each = setup;
    each.engine = engines[r];
    // Memory is looked at once, before anything is held: all replicas get the same.
    if (r > 0) each.kv_tokens = replicas.front().runner->options().cache_tokens;
    replicas.push_back(make_replica(each));
  }
  return replicas;
}

}  // namespace ridge
