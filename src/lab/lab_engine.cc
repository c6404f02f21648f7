#include "lab/lab_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "engine/account/bench_steps.h"
#include "engine/generate.h"
#include "engine/weights/random_weights.h"
#include "step/lower.h"

namespace ridge {
namespace {

constexpr uint64_t kLabSeed = 1;

System step_system(Lab& lab, Runner& runner) {
  if (lab.options().device == LabDevice::cuda) return lab.system();
  runner.read_rate();  // finds the caches cold
  std::array<double, 7> rates;
  for (double& rate : rates) rate = runner.read_rate();
  std::sort(rates.begin(), rates.end());
  return with_read_rate(lab.system(), runner, rates[rates.size() / 2]);
}

}  // namespace

LabShape lab_shape(const Lab& lab) {
  if (lab.quick())
    return {.hidden = 128,
            .layers = 2,
            .heads = 4,
            .kv_heads = 2,
            .head_dim = 32,
            .ffn = 256,
            .vocab = 512};
  return {.hidden = 512, .layers = 8, .heads = 8, .kv_heads = 4, .ffn = 1536, .vocab = 8192};
}

LabShape lab_large_shape(const Lab& lab) {
  if (lab.quick()) return lab_shape(lab);
  return {.hidden = 768, .layers = 12, .heads = 12, .kv_heads = 4, .ffn = 3072, .vocab = 16384};
}

Weights lab_weights(Lab& lab, const LabShape& shape, Storage storage) {
  const nlohmann::json config{{"model_type", "llama"},
                              {"hidden_size", shape.hidden},
                              {"num_hidden_layers", shape.layers},
                              {"num_attention_heads", shape.heads},
                              {"num_key_value_heads", shape.kv_heads},
                              {"head_dim", shape.head_dim},
                              {"intermediate_size", shape.ffn},
                              {"vocab_size", shape.vocab},
                              {"max_position_embeddings", 1 << 17},
                              {"torch_dtype", "bfloat16"},
                              {"tie_word_embeddings", true}};
  return random_weights_of(config, fmt::format("lab-{}x{}", shape.layers, shape.hidden), storage,
                           kLabSeed, lab.team().size());
}

std::unique_ptr<Runner> lab_runner(Lab& lab, Weights weights, RunnerOptions options) {
  if (lab.options().device == LabDevice::cuda) return make_cuda_runner(std::move(weights), options);
  options.team = lab.shared_team();
  return make_cpu_runner(std::move(weights), options);
}

LabPredictor::LabPredictor(Lab& lab, Runner& runner)
    : LabPredictor(step_system(lab, runner), runner) {}

LabPredictor::LabPredictor(System system, Runner& runner)
    : system_(std::move(system)),
      unpacked_bytes_(std::max(0.0, runner.repacked_bytes() - runner.weights().bytes)),
      rank_(make_rank(runner.weights().model, runner.plan())),
      ceilings_(
          make_ceilings(system_, runner.plan(), engine_stack(system_), &runner.weights().model)) {}

// With the level that holds all that this step reads: a long context may push it out of the cache.
Ceilings LabPredictor::place(std::span<const Sequences> batch) {
  lower(rank_, batch, ops_);
  double streamed = unpacked_bytes_;
  for (const Op& op : ops_) streamed += op.count * op.work.device_bytes();
  Ceilings ceilings = ceilings_;
  place_working_set(ceilings, system_.device, streamed);
  return ceilings;
}

StepEstimate LabPredictor::step(std::span<const Sequences> batch) {
  const Ceilings ceilings = place(batch);
  return estimate_step(ops_, ceilings, rank_.math);
}

double LabPredictor::bandwidth(const Sequences& sequences) {
  return place({&sequences, 1}).bandwidth;
}

Band band_of(const StepEstimate& estimate) {
  return {std::min(estimate.roof_s, estimate.low_s), estimate.expected_s, estimate.high_s};
}

Band scaled(const Band& band, double factor) {
  return {band.low * factor, band.expected * factor, band.high * factor};
}

Band rate_of(const Band& seconds, double amount) {
  return {amount / seconds.high, amount / seconds.expected, amount / seconds.low};
}

LabStep::LabStep(Runner& runner, int batch, int context, int fresh)
    : runner_(&runner),
      batch_(batch),
      context_(context),
      fresh_(fresh),
      pool_(runner.page_count(), runner.options().page_tokens),
      tokens_(some_tokens(batch * fresh, runner.weights().architecture.vocab, 2)),
      greedy_(size_t(batch), TopLogitsRequest{}) {
  std::vector<PageCopy> copies;  // none: nothing is shared
  for (int s = 0; s < batch; ++s) {
    kv_.emplace_back(pool_);
    if (!kv_.back().reserve(context + fresh, copies)) {
      throw Error("the KV cache has no room for {} sequences of {} tokens", batch, context + fresh);
    }
    const auto mine = std::span<const Token>(tokens_).subspan(size_t(s * fresh), size_t(fresh));
    slices_.push_back({mine, context, {}, 1});
  }
  for (size_t s = 0; s < slices_.size(); ++s) slices_[s].pages = kv_[s].pages();
}

void LabStep::operator()() {
  runner_->run(slices_);
  runner_->top_logits(greedy_);
}

Sequences LabStep::sequences() const {
  return {double(batch_), double(fresh_), double(context_), 1};
}

LabPoint measure_step(Lab& lab, LabPredictor& predictor, double x, LabStep& step, double factor) {
  const Band band = scaled(band_of(predictor.step(step.sequences())), factor);
  return lab.measure(
      x, band, [&] { step(); }, [&](double seconds) { return seconds * factor; });
}

std::vector<Token> lab_continue(Runner& runner, std::span<const Token> prompt, int count) {
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  KvSequence sequence(pool);
  GenerateOptions options;
  options.max_tokens = count;
  options.ignore_end = true;
  return generate(runner, sequence, prompt, options, {}).tokens;
}

std::string memory_note(double bytes) {
  return fmt::format("Holds up to {} while it runs.", pretty_bytes(bytes));
}

}  // namespace ridge
