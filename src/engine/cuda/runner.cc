// The runner on CUDA: translates weights, slices and pages for the DeviceModel, which runs the
// steps.
#ifdef RIDGE_HAS_CUDA

#include "engine/runner.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/account/profile.h"
#include "engine/cuda/device_memory.h"
#include "engine/cuda/device_model.h"
#include "engine/cuda/layout/device_format.h"
#include "engine/cuda/layout/wide_heads.h"
#include "engine/cuda/ranks/linked_exchange.h"
#include "engine/ranks/cut_weights.h"
#include "step/micro_batches.h"

namespace ridge {
namespace {

using cuda::DeviceModel;
using cuda::MatrixKind;
using cuda::ModelShape;
using cuda::rows_of;
using cuda::StepBounds;
using cuda::StepSlice;
using cuda::VectorKind;
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

ModelShape shape_of(const Weights& weights, const WideHeads& heads, const RankLinks* links) {
  const Architecture& a = weights.architecture;
  ModelShape s;
  s.layers = a.layer_count(), s.hidden = a.hidden, s.heads = a.heads, s.kv_heads = a.kv_heads;
  s.head_dim = heads.wide(), s.ffn = a.ffn, s.vocab = a.vocab;
  s.gelu = a.activation == Activation::gelu_tanh;
  s.clamped_swiglu = a.activation == Activation::clamped_swiglu;
  s.norm_eps = a.norm_eps, s.embed_scale = a.embed_scale, s.query_scale = a.query_scale;
  s.attention_softcap = a.attention_softcap, s.logit_softcap = a.logit_softcap;
  for (const LayerShape& layer : a.layers) {
    s.window.push_back(layer.window);
    s.rope.push_back(layer.rope);
    s.moe.push_back(layer.moe);
  }
  for (const Rope& rope : a.ropes) {
    s.ropes.push_back({heads.frequency(rope.frequency), rope.magnitude});
  }
  s.qk_norm = a.qk_norm, s.qkv_bias = a.qkv_bias, s.post_norms = a.post_norms;
  s.sinks = a.sinks, s.out_bias = a.out_bias, s.expert_bias = a.expert_bias;
  s.experts = a.experts, s.top_k = a.top_k, s.expert_ffn = a.expert_ffn;
  s.normalize_top_k = a.normalize_top_k;
  if (links != nullptr) set_part(weights, *links, s);
  return s;
}

cuda::KvFormat kv_format_of(KvStorage kv) {
  switch (kv) {
    case KvStorage::bf16:
      return cuda::KvFormat::bf16;
    case KvStorage::f16:
      return cuda::KvFormat::f16;
    case KvStorage::fp8:
      return cuda::KvFormat::fp8;
    case KvStorage::int8:
      return cuda::KvFormat::int8;
    case KvStorage::f32:
      break;
  }
  throw Error("on CUDA the KV cache is bf16, f16, fp8 or int8");
}

class CudaRunner final : public Runner {
 public:
  CudaRunner(Weights weights, const RunnerOptions& options)
      : weights_(std::move(weights)),
        options_(options),
        kv_(kv_format_of(options.kv)),
        heads_(weights_.architecture.head_dim, weights_.architecture.ropes[0].dims()) {
    if (options.page_tokens % kPageTokens != 0) {
      throw Error("pages of {} tokens: on CUDA a multiple of {}", options.page_tokens, kPageTokens);
    }
    if (options.ranks) cuda::use_device_of(options.ranks->rank());
    const ModelShape shape = shape_of(weights_, heads_, options.ranks.get());
    const StepBounds bounds = {options.max_tokens, options.max_sequences, options.logit_rows(), 1};
    const int cache_pages = page_count() * kernel_pages_per_page();
    const cuda::DeviceFound device = cuda::find_device();
    check_device_memory(weights_.model, plan_of_part(), options.device_format, options.cache_tokens,
                        cuda::step_bytes(shape, bounds, cache_pages), device.free_bytes,
                        device.name);
    std::unique_ptr<cuda::RankExchange> exchange;
    if (options.ranks) {
      exchange =
          cuda::make_exchange(options.ranks, size_t(options.max_tokens) * size_t(shape.hidden));
      sums_ = exchange->how();
    }
    model_ = DeviceModel::make(shape, options.device_format, kv_, cache_pages, bounds,
                               std::move(exchange));
    if (weights_.embed || options.ranks) {  // the later stages of a pipeline have no embedding
      load();
    } else {  // undrawn_weights_of()
      constexpr uint64_t kSeed = 1;
      model_->randomize(kSeed, 0);
    }
    weights_.model.head.format = stored_format(options.device_format);  // quantized like the rest
    slices_.reserve(size_t(options.max_sequences));
    pages_.reserve(max_context_pages());
  }

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  bool queues_steps() const override { return true; }
  void set_profile(Profile* profile) override {
    profile_ = profile;
    model_->keep_times(profile != nullptr);
  }
  void fill_cache(uint64_t seed) override { model_->randomize_cache(seed); }
  std::string device() const override {
    const std::string sums = sums_.empty() ? "" : ", " + sums_;
    return model_->device() + ", " + stored_format(options_.device_format).name + " weights" + sums;
  }
  double repacked_bytes() const override { return model_->weight_bytes(); }
  Plan plan() const override {
    Plan plan;
    plan.weights = stored_format(options_.device_format);
    // Long prompts decide: a step of few tokens takes the same time with either type.
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
  void load() {
    const auto matrix = [&](MatrixKind part, int layer, const Matrix& m, int expert = 0) {
      model_->load(part, layer, rows_of(m), {}, expert);
    };
    const RankLinks* links = options_.ranks.get();
    if (links == nullptr || links->is_first_stage()) {
      matrix(MatrixKind::embed, 0, embedding_of_part());
    }
    if (weights_.head) matrix(MatrixKind::head, 0, weights_.head);
    model_->load(VectorKind::final_norm, 0, weights_.final_norm);
    for (int l = 0; l < int(weights_.layers.size()); ++l) {
      const LayerWeights& w = weights_.layers[size_t(l)];
      model_->load(MatrixKind::q, l, heads_.rows(w.q));
      model_->load(MatrixKind::k, l, heads_.rows(w.k));
      model_->load(MatrixKind::v, l, heads_.rows(w.v));
      model_->load(MatrixKind::out, l, heads_.columns(w.out));
      if (weights_.architecture.layers[size_t(l)].moe) {
        matrix(MatrixKind::router, l, w.router);
        for (int e = 0; e < int(w.expert_down.size()); ++e) {
          const size_t i = size_t(e);
          if (!w.expert_down[i]) continue;  // on another rank
          model_->load(MatrixKind::expert_gate_up, l, rows_of(w.expert_gate[i]),
                       rows_of(w.expert_up[i]), e);
          matrix(MatrixKind::expert_down, l, w.expert_down[i], e);
        }
      } else {
        model_->load(MatrixKind::gate_up, l, rows_of(w.gate), rows_of(w.up));
        matrix(MatrixKind::down, l, w.down);
      }
      model_->load(VectorKind::attn_norm, l, w.attn_norm);
      model_->load(VectorKind::mlp_norm, l, w.mlp_norm);
      if (weights_.architecture.post_norms) {
        model_->load(VectorKind::post_attn_norm, l, w.post_attn_norm);
        model_->load(VectorKind::post_mlp_norm, l, w.post_mlp_norm);
      }
      if (weights_.architecture.qk_norm) {
        model_->load(VectorKind::q_norm, l, heads_.norm(w.q_norm));
        model_->load(VectorKind::k_norm, l, heads_.norm(w.k_norm));
      }
      if (weights_.architecture.qkv_bias) model_->load(VectorKind::qkv_bias, l, bias_of(w));
      if (weights_.architecture.out_bias) model_->load(VectorKind::out_bias, l, w.out_bias);
      if (weights_.architecture.sinks) model_->load(VectorKind::sinks, l, w.sinks);
      if (weights_.architecture.expert_bias) load_expert_biases(l);
    }
  }

  // As the kernels read them: the rows of gate and up alternate by eight (layout/pack.cuh), and the
  // experts that are here come first (those of other ranks have no biases).
  void load_expert_biases(int layer) {
    const LayerWeights& w = weights_.layers[size_t(layer)];
    Vector router = w.router_bias, gate_up, down;
    router.resize((router.size() + 15) / 16 * 16);
    for (const ExpertBias& bias : w.expert_bias) {
      for (size_t i = 0; i < bias.gate.size(); i += 8) {
        gate_up.insert(gate_up.end(), &bias.gate[i], &bias.gate[i] + 8);
        gate_up.insert(gate_up.end(), &bias.up[i], &bias.up[i] + 8);
      }
      down.insert(down.end(), bias.down.begin(), bias.down.end());
    }
    const Architecture& a = weights_.architecture;
    gate_up.resize(size_t(a.experts) * 2 * size_t(a.expert_ffn));
    down.resize(size_t(a.experts) * size_t(a.hidden));
    model_->load(VectorKind::router_bias, layer, router);
    model_->load(VectorKind::expert_gate_up_bias, layer, gate_up);
    model_->load(VectorKind::expert_down_bias, layer, down);
  }

  std::vector<float> bias_of(const LayerWeights& w) const {
    const Architecture& a = weights_.architecture;
    std::vector<float> bias;
    const auto add = [&](const Vector& narrow, int heads) {
      const Vector part = heads_.vector(narrow);
      const int columns = heads * heads_.wide();
      bias.resize(bias.size() + size_t(columns));  // absent: zero
      std::copy(part.begin(), part.end(), bias.end() - columns);
    };
    add(w.q_bias, a.heads);
    add(w.k_bias, a.kv_heads);
    add(w.v_bias, a.kv_heads);
    return bias;
  }

  // Of the tokens that this rank embeds.
  Matrix embedding_of_part() const {
    Matrix part = weights_.embed;
    if (!options_.ranks) return part;
    const RankGrid& grid = options_.ranks->grid;
    const RankPart tokens =
        vocabulary_part(weights_.architecture.vocab, grid.part_of(options_.ranks->rank()), grid.tp);
    part.data = weights_.embed.row(tokens.first);
    part.rows = tokens.end - tokens.first;
    return part;
  }

  // What one rank holds, as the predictor counts it.
  Plan plan_of_part() const {
    Plan part = plan();
    if (!options_.ranks) return part;
    const RankGrid& grid = options_.ranks->grid;
    part.tp = grid.tp, part.pp = grid.pp;
    if (grid.whole_experts) part.ep = grid.tp;
    return part;
  }

  int kernel_pages_per_page() const { return options_.page_tokens / kPageTokens; }

  size_t max_context_pages() const {
    return size_t(cuda::kMaxSharing) * size_t(page_count()) * size_t(kernel_pages_per_page());
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
  cuda::KvFormat kv_;
  WideHeads heads_;
  std::string sums_;  // how they are made among ranks; empty: there are none
  std::unique_ptr<DeviceModel> model_;
  std::vector<StepSlice> slices_;   // of the last step
  std::vector<int> micro_batches_;  // their ends among the slices
  std::vector<int> pages_;          // of its slices, one after the other
  std::vector<cuda::KernelPageCopy> copies_;
  Profile* profile_ = nullptr;
};

}  // namespace

std::unique_ptr<Runner> make_cuda_runner(Weights weights, const RunnerOptions& options) {
  const Architecture& made = weights.architecture;
  if (made.latent || made.family == "llama4_text") {
    throw Error("{} is executed on CPUs, not on CUDA: --device cpu", made.family);
  }
  choose_long_ropes(weights.architecture, options.longest());
  return std::make_unique<CudaRunner>(std::move(weights), options);
}

}  // namespace ridge

#endif
