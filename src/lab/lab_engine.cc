#include "lab/lab_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "engine/cuda/layout/device_format.h"
#include "engine/generate/bench_steps.h"
#include "engine/generate/generate.h"
#include "engine/weights/random_weights.h"
#include "lab/line_order.h"
#include "step/lower.h"

namespace ridge {
namespace {

constexpr uint64_t kLabSeed = 1;

System step_system(Lab& lab, Runner& runner) {
  if (lab.on_cuda()) return lab.system();
  runner.read_rate();  // finds the caches cold
  std::array<double, 7> rates;
  for (double& rate : rates) rate = runner.read_rate();
  std::sort(rates.begin(), rates.end());
  return with_read_rate(lab.system(), runner, rates[rates.size() / 2]);
}

// All pages of a pool that nobody holds, to be acquired in random order.
void shuffle_pages(PagePool& pool, uint64_t seed) {
  std::vector<int> pages;
  while (const std::optional<int> page = pool.acquire()) pages.push_back(*page);
  for (const uint32_t at : shuffled_lines(pages.size(), seed)) pool.release(pages[at]);
}

}  // namespace

LabShape lab_shape(const Lab& lab) {
  if (lab.on_cuda() && lab.quick()) {
    return {.hidden = 1024, .layers = 4, .heads = 16, .kv_heads = 4, .ffn = 4096, .vocab = 32000};
  }
  if (lab.on_cuda()) {  // Llama-3-8B
    return {.hidden = 4096,
            .layers = 32,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 128,
            .ffn = 14336,
            .vocab = 128256};
  }
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
  if (lab.on_cuda()) {  // Llama-2-13B with 8 KV heads
    return {.hidden = 5120,
            .layers = 40,
            .heads = 40,
            .kv_heads = 8,
            .head_dim = 128,
            .ffn = 13824,
            .vocab = 32000};
  }
  return {.hidden = 768, .layers = 12, .heads = 12, .kv_heads = 4, .ffn = 3072, .vocab = 16384};
}

LabFormat lab_format(const Lab& lab, Storage storage) {
  const StorageInfo& info = storage_info(storage);
  LabFormat format{std::string(info.name), info.bits(), storage, cuda::WeightFormat::bf16};
  if (!lab.on_cuda()) return format;
  if (storage == Storage::q8_0) format.device = cuda::WeightFormat::int8;
  if (storage == Storage::q4_0) format.device = cuda::WeightFormat::int4;
  const Format stored = stored_format(format.device);
  format.name = stored.name, format.bits = stored.bits;
  return format;
}

std::vector<LabFormat> lab_formats(const Lab& lab) {
  std::vector<LabFormat> formats;
  if (lab.on_cuda()) {
    for (const cuda::WeightFormat device : device_formats()) {
      const Format stored = stored_format(device);
      formats.push_back({stored.name, stored.bits, Storage::bf16, device});
    }
    return formats;
  }
  std::vector<Storage> storages{Storage::bf16, Storage::q8_0, Storage::q4_0};
  if (!lab.quick()) {
    storages = {Storage::f32,  Storage::f16,  Storage::bf16, Storage::q8_0,
                Storage::q6_k, Storage::q5_1, Storage::q5_0, Storage::q5_k,
                Storage::q4_1, Storage::q4_0, Storage::q4_k};
  }
  for (const Storage storage : storages) formats.push_back(lab_format(lab, storage));
  return formats;
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
                              {"tie_word_embeddings", !lab.on_cuda()}};
  const std::string name = fmt::format("lab-{}x{}", shape.layers, shape.hidden);
  if (lab.on_cuda()) return undrawn_weights_of(config, name);
  return random_weights_of(config, name, storage, kLabSeed, lab.team().size());
}

std::unique_ptr<Runner> lab_runner(Lab& lab, Weights weights, RunnerOptions options) {
  if (lab.on_cuda()) return make_cuda_runner(std::move(weights), options);
  options.team = lab.shared_team();
  return make_cpu_runner(std::move(weights), options);
}

std::unique_ptr<Runner> lab_runner(Lab& lab, const LabShape& shape, const LabFormat& format,
                                   RunnerOptions options) {
  options.device_format = format.device;
  if (lab.on_cuda()) options.kv = KvStorage::bf16;
  return lab_runner(lab, lab_weights(lab, shape, format.storage), std::move(options));
}

double weights_read(const Lab& lab, const Runner& runner) {
  return lab.on_cuda() ? runner.repacked_bytes() : runner.weights().bytes;
}

double weights_held(const Lab& lab, const Runner& runner) {
  if (!lab.on_cuda()) return runner.weights().bytes + runner.repacked_bytes();
  return runner.repacked_bytes() + runner.weights().embed.bytes();  // the embedding is not packed
}

LabPredictor::LabPredictor(Lab& lab, Runner& runner)
    : LabPredictor(lab, step_system(lab, runner), runner) {}

LabPredictor::LabPredictor(Lab& lab, System system, Runner& runner)
    : system_(std::move(system)),
      unpacked_bytes_(std::max(0.0, runner.repacked_bytes() - runner.weights().bytes)),
      rank_(make_rank(runner.weights().model, runner.plan())),
      ceilings_(
          make_ceilings(system_, runner.plan(), engine_stack(system_), &runner.weights().model)) {
  const Weights& weights = runner.weights();
  for (const Matrix* matrix : {&weights.layers.front().q, &weights.layers.front().down,
                               &weights.layers.back().down, &weights.head}) {
    set_kernel_costs(ceilings_, lab, matrix->storage);
  }
}

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

LabBand band_of(const StepEstimate& estimate) {
  return {estimate.low_s, estimate.expected_s, estimate.high_s};
}

LabBand scaled(const LabBand& band, double factor) {
  return {band.low * factor, band.expected * factor, band.high * factor};
}

LabBand rate_of(const LabBand& seconds, double amount) {
  return {amount / seconds.high, amount / seconds.expected, amount / seconds.low};
}

LabStep::LabStep(Runner& runner, int batch, int context, int fresh,
                 std::optional<uint64_t> page_seed)
    : runner_(&runner),
      batch_(batch),
      context_(context),
      fresh_(fresh),
      pool_(runner.page_count(), runner.options().page_tokens),
      tokens_(some_tokens(batch * fresh, runner.weights().architecture.vocab, 2)),
      greedy_(size_t(batch), TopLogitsRequest{}) {
  if (page_seed) shuffle_pages(pool_, *page_seed);
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
  const LabBand band = scaled(band_of(predictor.step(step.sequences())), factor);
  return lab.measure(
      x, band, [&] { step(); }, [&](double seconds) { return seconds * factor; });
}

std::vector<Token> lab_continue(Runner& runner, std::span<const Token> prompt, int count,
                                std::optional<uint64_t> page_seed) {
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  if (page_seed) shuffle_pages(pool, *page_seed);
  KvSequence sequence(pool);
  GenerateOptions options;
  options.max_tokens = count;
  options.ignore_end = true;
  return generate(runner, sequence, prompt, options, {}).tokens;
}

}  // namespace ridge
