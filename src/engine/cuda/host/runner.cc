// The runner on CUDA: translates weights, slices and pages for the DeviceModel, which runs the
// steps.
#ifdef RIDGE_HAS_CUDA

#include "engine/runner/runner.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/cuda/host/device_memory.h"
#include "engine/cuda/host/device_model.h"
#include "engine/cuda/host/device_shape.h"
#include "engine/cuda/host/load_model.h"
#include "engine/cuda/layout/device_format.h"
#include "engine/cuda/layout/wide_heads.h"
#include "engine/cuda/ranks/linked_exchange.h"
#include "engine/ranks/cut_weights.h"
#include "engine/runner/profile.h"
#include "step/micro_batches.h"

namespace ridge {
namespace {

using cuda::DeviceModel;
using cuda::ModelShape;
using cuda::StepBounds;
using cuda::StepSlice;
using cuda::WideHeads;

// Micro-batches of a pipeline: H100 and H200 multiply bf16 at 990 TFLOP/s and read 3.4 and 4.8
// TB/s, which meet at 200 to 300 operations a byte, one for each token.
constexpr double kTurnTokens = 256;

constexpr int kPageTokens = 16;  // of the kernels' pages; the pool's are one or more of them

// The part of a model that a rank's weights are.
void set_part(const Weights& weights, const RankLinks& links, ModelShape& s) {
  s.partial_sums = links.grid.tp > 1;
  s.embeds = links.is_first_stage();
  if (links.grid.tp > 1) {
    const RankPart tokens =
        vocabulary_part(s.vocab, links.grid.part_of(links.rank()), links.grid.tp);
    s.embed_first = tokens.first, s.embed_rows = tokens.end - tokens.first;
  }
  s.head_first = weights.head_first, s.head_rows = int(weights.head.rows);
  if (!links.grid.whole_experts || s.experts == 0) return;
  const RankPart here = expert_part(s.experts, links.grid.part_of(links.rank()), links.grid.tp);
  s.expert_first = here.first, s.expert_count = here.end - here.first;
}

class CudaRunner final : public Runner {
 public:
  CudaRunner(Weights weights, const RunnerOptions& options)
      : weights_(std::move(weights)),
        options_(options),
        format_(options.device_format.value_or(released_device_format(weights_.model))),
        kv_(kv_format_of(options.kv)),
        heads_(wide_heads(weights_.architecture)) {
    check_cuda_model(weights_.architecture, options.kv, options.ranks != nullptr);
    check_device_format(weights_.model, format_);
    if (options.page_tokens % kPageTokens != 0) {
      throw Error("pages of {} tokens: on CUDA a multiple of {}", options.page_tokens, kPageTokens);
    }
    if (options.ranks) cuda::use_device_of(options.ranks->rank());
    ModelShape shape = model_shape(weights_.architecture, heads_);
    if (options.ranks) set_part(weights_, *options.ranks, shape);
    const StepBounds bounds = {options.max_tokens, options.max_sequences, options.logit_rows(), 1};
    const int cache_pages = page_count() * kernel_pages_per_page();
    const cuda::DeviceFound device = cuda::find_device();
    check_device_memory(weights_.model, plan_of_part(), format_, options.cache_tokens,
                        cuda::step_bytes(shape, bounds, cache_pages), device.free_bytes,
                        device.name);
    std::unique_ptr<cuda::RankExchange> exchange;
    if (options.ranks) {
      exchange =
          cuda::make_exchange(options.ranks, size_t(options.max_tokens) * size_t(shape.hidden));
      if (!exchange->how().empty()) ranks_text_ = ", " + exchange->how();
      if (cuda::on_several_gpus(*options.ranks)) {
        ranks_text_ += fmt::format(" ({})", cuda::kSeveralGpusNote);
      }
    }
    model_ = DeviceModel::make(shape, format_, kv_, cache_pages, bounds, std::move(exchange));
    if (weights_.embed || options.ranks) {  // the later stages of a pipeline have no embedding
      load_model(weights_, heads_, options.ranks.get(), *model_);
    } else {  // undrawn_weights_of()
      constexpr uint64_t kSeed = 1;
      model_->randomize(kSeed, 0);
    }
    weights_.model = model_on_device(std::move(weights_.model), format_);
    slices_.reserve(size_t(options.max_sequences));
    pages_.reserve(max_context_pages());
  }

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  bool queues_steps() const override { return true; }
  int max_listed_pages() const override { return cuda::kMaxSharing * page_count(); }
  void set_profile(Profile* profile) override {
    profile_ = profile;
    model_->keep_times(profile != nullptr);
  }
  void fill_cache(uint64_t seed) override { model_->randomize_cache(seed); }
  std::string device() const override {
    return model_->device() + ", " + weights_text() + ranks_text_;
  }
  double repacked_bytes() const override { return model_->weight_bytes(); }
  Plan plan() const override {
    Plan plan;
    plan.weights = planned_weights(format_);
    // Long prompts and large batches decide: steps of at most 8 tokens take the same time with
    // either type.
    const bool fp8 = model_ && model_->has_fp8_products(options_.max_tokens);
    plan.activations = fp8 ? DType::fp8 : DType::bf16;
    plan.kv = stored_format(kv_, heads_.wide());
    plan.page_tokens = options_.page_tokens;
    plan.turn_tokens = kTurnTokens;
    return plan;
  }

  void run(std::span<const Slice> batch) override {
    check_step(batch, options_, weights_.architecture.vocab);
    lay_out(batch);
    const Profile::Clock::time_point start = Profile::Clock::now();
    const int stages = options_.ranks ? options_.ranks->grid.pp : 1;
    micro_batches_.assign(1, int(batch.size()));
    if (stages > 1) micro_batches_ = micro_batch_ends(token_counts(batch), stages, kTurnTokens);
    model_->step(slices_.data(), micro_batches_);
    if (profile_ != nullptr) record_operators(start);
  }
  std::span<const float> logits() override { return model_->logits(); }
  void sample(std::span<const TopLogitsRequest> requests) override {
    model_->sample(requests.data(), int(requests.size()));
  }
  std::span<const TopLogits> fetch() override {
    int count = 0;
    const TopLogits* rows = model_->fetch(count);
    return {rows, size_t(count)};
  }
  void copy_pages(std::span<const PageCopy> copies) override {
    const int each = kernel_pages_per_page();
    copies_.clear();
    for (const PageCopy& copy : copies) {
      if (std::min(copy.from, copy.to) < 0 || std::max(copy.from, copy.to) >= page_count()) {
        throw Error("a copy of page {} to {} in a cache of {}", copy.from, copy.to, page_count());
      }
      const int count = (copy.tokens + kPageTokens - 1) / kPageTokens;
      for (int i = 0; i < count; ++i) {
        copies_.push_back({copy.from * each + i, copy.to * each + i});
      }
    }
    model_->copy_pages(copies_.data(), int(copies_.size()));
  }

 private:
  // What one rank holds, as the predictor counts it.
  Plan plan_of_part() const {
    Plan part = plan();
    if (!options_.ranks) return part;
    const RankGrid& grid = options_.ranks->grid;
    part.tp = grid.tp, part.pp = grid.pp;
    if (grid.whole_experts) part.ep = grid.tp;
    return part;
  }

  std::string weights_text() const {
    const std::string name = stored_format(format_).name;
    return name + (format_ == cuda::WeightFormat::mxfp4 ? " experts" : " weights");
  }

  int kernel_pages_per_page() const { return options_.page_tokens / kPageTokens; }

  size_t max_context_pages() const {
    return size_t(max_listed_pages()) * size_t(kernel_pages_per_page());
  }

  // The step's slices with the kernels' pages, up to each slice's last token.
  void lay_out(std::span<const Slice> batch) {
    const int each = kernel_pages_per_page();
    const auto pages_of = [](const Slice& slice) {
      return (slice.past + int(slice.tokens.size()) + kPageTokens - 1) / kPageTokens;
    };
    size_t total = 0;
    for (const Slice& slice : batch) total += size_t(pages_of(slice));
    const size_t most = max_context_pages();
    if (total > most) {
      throw Error("a step of {} tokens of context: this runner takes {}", total * kPageTokens,
                  most * kPageTokens);
    }
    slices_.clear(), pages_.clear();
    for (const Slice& slice : batch) {
      const int count = pages_of(slice);
      const int* first = pages_.data() + pages_.size();  // stays: the capacity suffices
      for (int i = 0; i < count; ++i) {
        pages_.push_back(slice.pages[size_t(i / each)] * each + i % each);
      }
      slices_.push_back(
          {slice.tokens.data(), int(slice.tokens.size()), slice.past, first, count, slice.logits});
    }
  }

  // The step's operators by the device's clock, from `start` on.
  void record_operators(Profile::Clock::time_point start) {
    for (const auto& [name, seconds] : model_->operators()) {
      const auto stop = start + std::chrono::duration_cast<Profile::Clock::duration>(
                                    std::chrono::duration<double>(seconds));
      profile_->add(name, start, stop);
      start = stop;
    }
  }

  Weights weights_;
  RunnerOptions options_;
  cuda::WeightFormat format_;
  cuda::KvFormat kv_;
  WideHeads heads_;
  std::string ranks_text_;  // how sums are made among ranks; empty: there are none
  std::unique_ptr<DeviceModel> model_;
  std::vector<StepSlice> slices_;   // of the last step
  std::vector<int> micro_batches_;  // their ends among the slices
  std::vector<int> pages_;          // of its slices, one after the other
  std::vector<cuda::KernelPageCopy> copies_;
  Profile* profile_ = nullptr;
};

}  // namespace

std::unique_ptr<Runner> make_cuda_runner(Weights weights, const RunnerOptions& options) {
  choose_long_ropes(weights.architecture, options.longest());
  return std::make_unique<CudaRunner>(std::move(weights), options);
}

}  // namespace ridge

#endif
