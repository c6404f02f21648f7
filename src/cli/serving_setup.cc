#include "cli/serving_setup.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/memory_limit.h"
#include "engine/ranks/rank_grid.h"
#include "machine/nvml.h"

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

// Bytes that a KV cache may have.
double kv_memory(const Weights& weights, bool cuda) {
  if (!cuda) return free_bytes() / 2;
  const std::vector<GpuFound> gpus = detect_gpus();
  if (gpus.empty()) return 0;
  // Beside the weights, in bf16 at most: steps' buffers, graphs and the CUDA context.
  constexpr double kShare = 0.9, kBuffers = 4e9;
  return kShare * gpus.front().memory - 2 * parameters(weights.model) - kBuffers;
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

int default_kv_tokens(const Weights& weights, const RunnerOptions& bounds, bool cuda, int context,
                      int kv_copies) {
  const Architecture& model = weights.architecture;
  const double token_bytes =
      kv_copies * 2.0 * model.layer_count() * model.kv_columns() * kv_element_bytes(bounds.kv);
  const double room = kv_memory(weights, cuda) / token_bytes;
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
}

void check_serving_setup(const ServingSetup& setup) { serving_bounds(setup); }

std::pair<std::unique_ptr<Runner>, ServingOptions> make_serving_engine(const ServingSetup& setup) {
  RunnerOptions bounds = serving_bounds(setup);
  Weights weights = load_engine_weights(setup.engine);
  const int own = weights.architecture.max_context;
  ServingOptions options;
  options.max_context = setup.context > 0 ? std::min(setup.context, own) : own;
  options.max_waiting = setup.max_waiting;
  options.max_drafts = draft_tokens(setup);
  options.prefix_cache = !setup.no_prefix_cache;
  // KV heads fewer than ranks are held by several.
  const RankLinks* links = setup.engine.links.get();
  const int tp = links ? links->grid.tp : 1;
  if (links) options.lost = links->lost;
  const int copies = std::max(1, tp / weights.architecture.kv_heads);
  bounds.cache_tokens = setup.kv_tokens > 0 ? setup.kv_tokens
                                            : default_kv_tokens(weights, bounds, on_cuda(setup),
                                                                options.max_context, copies);
  std::unique_ptr<Runner> runner = make_runner(setup.engine, std::move(weights), bounds);
  options.draft = make_draft(setup, *runner);
  try {
    options.system = roof_system(setup.engine, *runner);
    options.stack = engine_stack(*options.system);
  } catch (const Error&) {  // the atlas does not know this GPU: steps have no prediction
  }
  return {std::move(runner), std::move(options)};
}

}  // namespace ridge
