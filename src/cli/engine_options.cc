#include "cli/engine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/cuda/host/device_shape.h"
#include "engine/cuda/layout/device_format.h"
#include "engine/cuda/ranks/linked_exchange.h"
#include "engine/ranks/start_ranks.h"
#include "ranks/mpi.h"

namespace ridge {
namespace {

KvStorage kv_storage(const std::string& name, bool cuda) {
  if (name.empty()) return cuda ? KvStorage::bf16 : KvStorage::f16;
  if (name == "f32" && !cuda) return KvStorage::f32;
  if (name == "f16") return KvStorage::f16;
  if (name == "bf16") return KvStorage::bf16;
  if (name == "fp8" && cuda) return KvStorage::fp8;
  if (name == "int8") return KvStorage::int8;
  throw OptionError(
      "kv", fmt::format("--kv {}: with --device {}", name,
                        cuda ? "cuda bf16, f16, fp8 or int8" : "cpu f32, f16, bf16 or int8"));
}

cuda::WeightFormat device_format(const std::string& name) {
  try {
    return device_format_from_name(name);
  } catch (const Error& error) {
    throw OptionError("format", fmt::format("--format {}: {}", name, error.what()));
  }
}

RankGrid rank_grid(const EngineOptions& options) {
  RankGrid grid;
  grid.pp = options.pp;
  grid.tp = options.tp > 0 ? options.tp : std::max(1, options.ranks / options.pp);
  grid.whole_experts = options.ep > 1;
  if (options.ranks > 0 && options.ranks != grid.ranks()) {
    throw OptionError("ranks", fmt::format("--ranks {}: tp {} x pp {} are {}", options.ranks,
                                           grid.tp, grid.pp, grid.ranks()));
  }
  if (options.ep > 1 && options.ep != grid.tp) {
    throw OptionError("ep", fmt::format("--ep {}: experts are spread over the {} ranks of a stage "
                                        "(--tp), or cut among them (--ep 1)",
                                        options.ep, grid.tp));
  }
  return grid;
}

MakeRunner runner_of(const EngineOptions& options) {
  return options.device == "cuda" ? make_cuda_runner : make_cpu_runner;
}

std::string format_of(const EngineOptions& options) {
  return options.format.empty() ? "bf16" : options.format;
}

}  // namespace

uint64_t random_seed(const std::string& weights) {
  constexpr std::string_view kPrefix = "random:";
  uint64_t seed = 0;
  const char* begin = weights.data() + kPrefix.size();
  const char* end = weights.data() + weights.size();
  const bool prefixed = weights.starts_with(kPrefix) && begin < end;
  const auto [stop, error] =
      prefixed ? std::from_chars(begin, end, seed) : std::from_chars_result{begin, std::errc{}};
  if (!prefixed || error != std::errc{} || stop != end) {
    throw OptionError("weights", fmt::format("--weights {}: random:SEED, a whole number, such as "
                                             "random:1",
                                             weights));
  }
  return seed;
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  const char* kGroup = "Engine";
  command.add_option("--device", options.device, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--weights", options.weights,
                  "random:SEED makes any described model runnable without its files")
      ->group(kGroup);
  command
      .add_option(
          "--format", options.format,
          "Random weights: bf16 (default; experts of gpt-oss in MXFP4), q8_0, q4_0 ...; any "
          "weights on cuda: bf16 (default), fp8, int8, int4, nf4; mxfp4 (default of gpt-oss) keeps "
          "its experts as released")
      ->group(kGroup);
  command
      .add_option("--kv", options.kv,
                  "KV cache: f32, f16 (default), bf16 or int8; on cuda bf16 (default), f16, fp8 or "
                  "int8")
      ->group(kGroup);
  command.add_option("-t,--threads", options.threads, "CPU threads, of each rank; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->group(kGroup);
  command.add_option("--page", options.page_tokens, "Tokens of a KV page, a multiple of 16")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str()
      ->group(kGroup);
  const char* kRanks = "Ranks";
  command
      .add_option("--ranks", options.ranks,
                  fmt::format("Processes that share the model: tp x pp. With --device cuda, {}",
                              cuda::kSeveralGpusNote))
      ->check(CLI::Range(1, 64))
      ->group(kRanks);
  command.add_option("--tp", options.tp, "Ranks that cut every layer among themselves (all)")
      ->check(CLI::Range(1, 64))
      ->group(kRanks);
  command.add_option("--pp", options.pp, "Stages of consecutive layers")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option("--ep", options.ep,
                  "1: every expert is cut among the ranks; as --tp: given whole")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option("--rank-deadline", options.rank_deadline_s,
                  "Seconds after which a rank that does not answer ends the run")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option("--chunk", options.chunk,
                  "Prompt tokens of a step (512, with --device cuda 4096)")
      ->check(CLI::Range(1, 1 << 16))
      ->group(kGroup);
  command
      .add_flag(
          "--invariant", options.invariant,
          "CPU: results do not depend on the batch and the chunks; slower prompts on CPUs with "
          "AMX, nothing else")
      ->group(kGroup);
}

namespace {

Storage random_storage(const EngineOptions& options) {
  return options.device == "cuda" ? Storage::bf16 : storage_from_name(format_of(options));
}

// Each rank makes or copies its part. Forked ranks share the memory of one host.
LazyWeights load_for_rank(const EngineOptions& options) {
  const int hosts = mpi_processes() > 1 ? rank_grid(options).ranks() : 1;  // at most
  if (options.weights.empty()) return lazy_weights(options.model, hosts);
  return lazy_random_weights(options.model, random_storage(options), random_seed(options.weights),
                             options.threads, hosts);
}

}  // namespace

void start_ranks(EngineOptions& options) {
  const RankGrid grid = rank_grid(options);
  if (grid.ranks() == 1 && mpi_processes() > 1) {
    throw OptionError("ranks",
                      fmt::format("MPI started {0} processes: --ranks {0}, or --tp and --pp, "
                                  "share the model among them",
                                  mpi_processes()));
  }
  if (grid.ranks() == 1 || options.links) return;
  const auto deadline = std::chrono::milliseconds(int64_t(options.rank_deadline_s * 1000));
  options.links = start_ranks(
      {runner_of(options), grid, deadline, [options] { return load_for_rank(options); }});
}

int chunk_of(const EngineOptions& options) {
  return options.chunk > 0 ? options.chunk : options.device == "cuda" ? 4096 : 512;
}

RunnerOptions runner_options(const EngineOptions& options, RunnerOptions bounds) {
  if (options.page_tokens % 16 != 0) {
    throw OptionError("page", fmt::format("--page {}: a multiple of 16", options.page_tokens));
  }
  const bool cuda = options.device == "cuda";
  if (!cuda && !options.format.empty() && options.weights.empty()) {
    throw OptionError("format", fmt::format("--format {}: on the CPU for --weights random:SEED; "
                                            "`ridge convert` changes a model's own",
                                            options.format));
  }
  if (cuda && options.invariant) {
    throw OptionError("invariant",
                      "--invariant: with --device cpu; on cuda sums depend on a step's size");
  }
  bounds.threads = options.threads;
  bounds.invariant = options.invariant;
  bounds.kv = kv_storage(options.kv, cuda);
  bounds.page_tokens = options.page_tokens;
  bounds.max_tokens = chunk_of(options);
  // On a device the format is packed while loading, from bf16 where the weights are random.
  if (cuda && !options.format.empty()) bounds.device_format = device_format(options.format);
  return bounds;
}

Weights load_engine_weights(const EngineOptions& options) {
  if (options.device == "cuda") {
    check_cuda_model(read_architecture(options.model), kv_storage(options.kv, true),
                     rank_grid(options).ranks() > 1);
  }
  if (rank_grid(options).ranks() > 1) return load_for_rank(options).whole;  // a shape, not filled
  if (options.weights.empty()) return load_weights(options.model);
  return random_weights(options.model, random_storage(options), random_seed(options.weights),
                        options.threads);
}

std::unique_ptr<Runner> make_runner(const EngineOptions& options, Weights weights,
                                    const RunnerOptions& wanted) {
  if (rank_grid(options).ranks() > 1) {
    EngineOptions started = options;
    start_ranks(started);
    return lead(std::move(started.links), runner_of(options), load_for_rank(options), wanted);
  }
  return runner_of(options)(std::move(weights), wanted);
}

std::unique_ptr<Runner> make_runner(const EngineOptions& options, const RunnerOptions& bounds) {
  const RunnerOptions wanted = runner_options(options, bounds);
  EngineOptions started = options;
  start_ranks(started);
  return make_runner(started, load_engine_weights(options), wanted);
}

std::vector<Token> text_prompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<Token> tokens = tokenizer.encode(text);
  if (tokenizer.adds_bos && tokenizer.bos) tokens.insert(tokens.begin(), *tokenizer.bos);
  if (tokens.empty() && tokenizer.bos) tokens.push_back(*tokenizer.bos);
  return tokens;
}

System roof_system(const EngineOptions& options, Runner& runner) {
  return options.device == "cpu" ? cpu_roof_system(runner) : cuda_roof_system(runner);
}

}  // namespace ridge
