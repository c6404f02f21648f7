// The runner on CUDA: steps of at most 8 tokens by the decode kernel, where it has code for the
// model; all others operator by operator.
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

namespace ridge {
namespace {

using cuda::DecodeRow;
using cuda::DeviceModel;
using cuda::ForwardSlice;
using cuda::MatrixKind;
using cuda::ModelShape;
using cuda::rows_of;
using cuda::VectorKind;
using cuda::WideHeads;

constexpr int kRows = 8;         // tokens of a step that the decode kernel takes
constexpr int kPageTokens = 16;  // of the kernel's pages; the pool's are one or more of them

ModelShape shape_of(const Architecture& a, const WideHeads& heads) {
  ModelShape s;
  s.layers = a.layer_count(), s.hidden = a.hidden, s.heads = a.heads, s.kv_heads = a.kv_heads;
  s.head_dim = heads.wide(), s.ffn = a.ffn, s.vocab = a.vocab;
  s.gelu = a.activation == Activation::gelu_tanh;
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
  s.experts = a.experts, s.top_k = a.top_k, s.expert_ffn = a.expert_ffn;
  s.normalize_top_k = a.normalize_top_k;
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
        heads_(weights_.architecture.head_dim),
        pool_((options.cache_tokens + options.page_tokens - 1) / options.page_tokens,
              options.page_tokens) {
    if (options.page_tokens % kPageTokens != 0) {
      throw Error("pages of {} tokens: on CUDA a multiple of {}", options.page_tokens, kPageTokens);
    }
    const ModelShape shape = shape_of(weights_.architecture, heads_);
    const cuda::DeviceFound device = cuda::find_device();
    check_device_memory(weights_.model, plan(), options.device_format, options.cache_tokens,
                        options.max_tokens, device.free_bytes, device.name);
    model_ = DeviceModel::make(shape, options.device_format, kv_,
                               pool_.total() * (options.page_tokens / kPageTokens));
    load();
    weights_.model.head.format = stored_format(options.device_format);  // quantized like the rest
  }

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  PagePool& pool() override { return pool_; }
  void set_profile(Profile* profile) override {
    profile_ = profile;
    model_->keep_stamps(profile != nullptr);
  }
  void fill_cache(uint64_t seed) override { model_->randomize_cache(seed); }
  std::string device() const override {
    return model_->device() + ", " + stored_format(options_.device_format).name + " weights";
  }
  double repacked_bytes() const override { return model_->weight_bytes(); }
  Plan plan() const override {
    Plan plan;
    plan.weights = stored_format(options_.device_format);
    plan.activations = DType::bf16;
    plan.kv = stored_format(kv_, heads_.wide());
    plan.page_tokens = options_.page_tokens;
    return plan;
  }

  std::span<const float> logits() override { return on_device_ ? model_->logits() : logits_; }
  std::span<const Token> likeliest() override {
    if (!on_device_) return Runner::likeliest();
    likeliest_ = model_->chosen();
    return likeliest_;
  }
  std::span<const TopLogits> top_logits(std::span<const TopLogitsRequest> requests) override {
    if (!on_device_) return Runner::top_logits(requests);
    return model_->top_logits({requests.begin(), requests.end()});
  }

  void run(std::span<const Slice> batch) override {
    const size_t vocab = size_t(weights_.architecture.vocab);
    size_t total = 0;
    std::vector<std::vector<int>> pages;
    for (const Slice& slice : batch) {
      total += slice.tokens.size();
      pages.push_back(kernel_pages(slice.pages));
      for (const Token token : slice.tokens) {
        if (token < 0 || size_t(token) >= vocab) {
          throw Error("token {} is outside the vocabulary of {}", token, vocab);
        }
      }
    }
    if (total > size_t(options_.max_tokens)) {
      throw Error("a step of more than {} tokens", options_.max_tokens);
    }
    logits_.clear();
    on_device_ = false;
    if (total == 0) return;
    if (total <= kRows && model_->decodes()) return decode(batch, pages, total);
    forward(batch, pages);
    on_device_ = true;
  }

 private:
  void load() {
    const auto matrix = [&](MatrixKind part, int layer, const Matrix& m, int expert = 0) {
      model_->load(part, layer, rows_of(m), {}, expert);
    };
    matrix(MatrixKind::embed, 0, weights_.embed);
    matrix(MatrixKind::head, 0, weights_.head);
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
    }
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

  std::vector<int> kernel_pages(std::span<const int> pages) const {
    const int each = options_.page_tokens / kPageTokens;
    std::vector<int> all;
    for (const int page : pages) {
      for (int i = 0; i < each; ++i) all.push_back(page * each + i);
    }
    return all;
  }

  // Launches of the decode kernel: each takes the next tokens of every slice that has some. A
  // slice's part of a launch stays within a page, as the kernel wants it.
  void decode(std::span<const Slice> batch, const std::vector<std::vector<int>>& pages,
              size_t total) {
    const size_t vocab = size_t(weights_.architecture.vocab);
    size_t wanted = 0;
    std::vector<size_t> done(batch.size()), first_logit(batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      first_logit[i] = wanted;
      wanted += size_t(batch[i].logits);
    }
    logits_.resize(wanted * vocab);
    std::vector<DecodeRow> rows;
    std::vector<std::pair<size_t, size_t>> of;  // slice and token of each row
    for (size_t finished = 0; finished < total; finished += rows.size()) {
      rows.clear();
      of.clear();
      for (size_t i = 0; i < batch.size(); ++i) {
        const Slice& slice = batch[i];
        const int past = slice.past + int(done[i]), first = int(rows.size());
        const size_t room = size_t(kPageTokens - past % kPageTokens);
        const size_t count = std::min(room, slice.tokens.size() - done[i]);
        for (size_t t = 0; t < count; ++t) {
          rows.push_back(
              {int(slice.tokens[done[i] + t]), past, first, pages[i].data(), int(pages[i].size())});
          of.emplace_back(i, done[i] + t);
        }
        done[i] += count;
      }
      launch(rows);
      // The usual step, a token and its logits of each sequence, needs no copy.
      on_device_ = rows.size() == total && wanted == total;
      if (on_device_) return;
      collect(batch, of, first_logit, vocab);
    }
  }

  void forward(std::span<const Slice> batch, const std::vector<std::vector<int>>& pages) {
    std::vector<ForwardSlice> slices;
    for (size_t i = 0; i < batch.size(); ++i) {
      const Slice& slice = batch[i];
      if (slice.tokens.empty()) continue;
      slices.push_back({slice.tokens.data(), int(slice.tokens.size()), slice.past, pages[i].data(),
                        int(pages[i].size()), slice.logits});
    }
    const Profile::Clock::time_point start = Profile::Clock::now();
    model_->forward(slices);
    model_->wait();
    record(start);
  }

  void launch(const std::vector<DecodeRow>& rows) {
    const Profile::Clock::time_point start = Profile::Clock::now();
    model_->run(rows, 1);
    model_->wait();
    record(start);
  }

  // The step's operators by the device's clock, from `start` on.
  void record(Profile::Clock::time_point start) {
    if (profile_ == nullptr) return;
    for (const auto& [name, seconds] : model_->operators()) {
      const auto stop = start + std::chrono::duration_cast<Profile::Clock::duration>(
                                    std::chrono::duration<double>(seconds));
      profile_->add(name, start, stop);
      start = stop;
    }
  }

  // Logits of the rows that were asked for.
  void collect(std::span<const Slice> batch, const std::vector<std::pair<size_t, size_t>>& of,
               const std::vector<size_t>& first_logit, size_t vocab) {
    const auto is_wanted = [&](size_t slice, size_t token) {
      return token + size_t(batch[slice].logits) >= batch[slice].tokens.size();
    };
    if (std::none_of(of.begin(), of.end(),
                     [&](auto& row) { return is_wanted(row.first, row.second); })) {
      return;
    }
    const std::vector<float>& from = model_->logits();
    for (size_t r = 0; r < of.size(); ++r) {
      const auto [slice, token] = of[r];
      if (!is_wanted(slice, token)) continue;
      const size_t to =
          first_logit[slice] + token + size_t(batch[slice].logits) - batch[slice].tokens.size();
      std::copy_n(&from[r * vocab], vocab, &logits_[to * vocab]);
    }
  }

  Weights weights_;
  RunnerOptions options_;
  cuda::KvFormat kv_;
  WideHeads heads_;
  PagePool pool_;
  std::unique_ptr<DeviceModel> model_;
  bool on_device_ = false;     // the wanted rows are those of the last launch
  std::vector<float> logits_;  // otherwise
  std::vector<Token> likeliest_;
  Profile* profile_ = nullptr;
};

}  // namespace

std::unique_ptr<Runner> make_cuda_runner(Weights weights, const RunnerOptions& options) {
  return std::make_unique<CudaRunner>(std::move(weights), options);
}

}  // namespace ridge

#endif
