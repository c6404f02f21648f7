#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "engine/cuda/device/kernel_set.h"
#include "engine/cuda/host/device_model.h"
#include "engine/cuda/sampling/top_logits.cuh"
#include "engine/cuda/step/decode_step.cuh"
#include "engine/cuda/step/forward.cuh"
#include "engine/cuda/step/page_copy.cuh"
#include "engine/cuda/step/step_kernels.cuh"
#include "engine/cuda/step/step_path.cuh"

namespace ridge::cuda {
namespace {

cudaDeviceProp current_device() {
  cudaDeviceProp properties;
  int index = 0;
  check(cudaGetDevice(&index), "finding a device");
  check(cudaGetDeviceProperties(&properties, index), "asking for the device");
  return properties;
}

size_t context_pages(int cache_pages) { return size_t(kMaxSharing) * size_t(cache_pages); }

AttentionBounds attention_bounds(const StepBounds& bounds, int cache_pages) {
  return {bounds.tokens, bounds.sequences, cache_pages, int(context_pages(cache_pages))};
}

// Both paths' memory between kernels.
struct StepBuffers {
  StepBuffers(Workspace& workspace, const ModelShape& shape, KernelSet kernels,
              const StepBounds& bounds, int sms)
      : forward(workspace, shape, bounds) {
    if (decode_kernel_tokens(shape, kernels) > 0) {
      decode.emplace(workspace, shape, sms, bounds.decode_steps);
    }
  }
  static size_t bytes(const ModelShape& shape, KernelSet kernels, const StepBounds& bounds,
                      int sms) {
    Workspace counted;
    StepBuffers(counted, shape, kernels, bounds, sms);
    return counted.bytes();
  }
  ForwardBuffers forward;
  std::optional<DecodeBuffers> decode;  // of models that have the kernel
};

size_t input_bytes(const ModelShape& shape, KernelSet kernels, const StepBounds& bounds,
                   int cache_pages, int sms) {
  return std::max(
      DecodeStep::input_bytes(context_pages(cache_pages)),
      Forward::input_bytes(shape, kernels, sms, bounds, attention_bounds(bounds, cache_pages)));
}

// A vector in pinned memory, so that the device copies into it directly.
class PinnedVector {
 public:
  PinnedVector() = default;
  ~PinnedVector() { unpin(); }
  PinnedVector(const PinnedVector&) = delete;
  PinnedVector& operator=(const PinnedVector&) = delete;
  std::vector<float>& resize(size_t count) {
    if (count > values_.capacity()) {
      unpin();
      values_ = {};
      values_.reserve(count);
      check(cudaHostRegister(values_.data(), count * sizeof(float), cudaHostRegisterDefault),
            "pinning memory");
    }
    values_.resize(count);
    return values_;
  }

 private:
  void unpin() {
    if (values_.capacity() > 0) cudaHostUnregister(values_.data());
  }
  std::vector<float> values_;
};

class CudaModel final : public DeviceModel {
 public:
  CudaModel(const ModelShape& shape, WeightFormat format, KvFormat kv_format, int cache_pages,
            const StepBounds& bounds, std::unique_ptr<RankExchange> exchange)
      : properties_(current_device()),
        kernels_(kernels_of_device()),
        bounds_(bounds),
        exchange_(std::move(exchange)),
        w_(shape, format, kv_format, cache_pages),
        memory_(StepBuffers::bytes(shape, kernels_, bounds, sms())),
        buffers_([&] {
          memory_.fill_bytes(0);
          Workspace workspace(memory_.data());
          return StepBuffers(workspace, shape, kernels_, bounds, sms());
        }()),
        forward_(w_, kernels_, sms(), buffers_.forward, attention_bounds(bounds, cache_pages),
                 exchange_.get()),
        inputs_(input_bytes(shape, kernels_, bounds, cache_pages, sms())),
        finder_(bounds.logit_rows, shape.head_columns(), shape.head_first) {
    if (buffers_.decode && has_variant(decode_variant(shape), format)) {
      decode_.emplace(w_, kernels_, sms(), *buffers_.decode, bounds.decode_steps);
      if (decode_->most_rows() == 0) decode_.reset();
    }
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check(cudaEventCreate(&start_), "making an event");
    check(cudaEventCreate(&stop_), "making an event");
    check(cudaDeviceSynchronize(), "clearing memory");
  }

  ~CudaModel() override {
    if (exchange_) exchange_->stop();
    cudaStreamSynchronize(stream_);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }

  void load(MatrixKind kind, int layer, const FillRows& first, const FillRows& second,
            int expert) override {
    w_.load(stream_, kind, layer, first, second, expert);
  }
  void load(VectorKind kind, int layer, const std::vector<float>& values) override {
    w_.load(stream_, kind, layer, values);
  }
  void finish_loading() override { w_.finish_loading(stream_); }
  void randomize(uint64_t seed, float norm_deviation) override {
    w_.randomize(stream_, seed, norm_deviation);
  }
  void randomize_cache(uint64_t seed) override { w_.randomize_cache(stream_, seed); }

  void step(const StepSlice* slices, const std::vector<int>& ends) override {
    const int count = ends.back();
    const int tokens = check_bounds(slices, count);
    operators_.clear();
    if (decode_ && tokens <= decode_->most_rows() &&
        step_path(w_.shape, kernels_, w_.format, tokens) == StepPath::decode_kernel) {
      decode_slices(slices, count, tokens);
    } else {
      int first = 0, rows = 0;
      for (const int end : ends) {
        rows = forward_slices(slices + first, end - first, rows);
        first = end;
      }
    }
  }

  const std::vector<float>& logits() override {
    std::vector<float>& to =
        host_logits_.resize(size_t(result_.rows) * size_t(w_.shape.head_columns()));
    check(cudaMemcpyAsync(to.data(), result_.logits, to.size() * sizeof(float),
                          cudaMemcpyDeviceToHost, stream_),
          "copying logits");
    wait();
    return to;
  }
  void sample(const TopLogitsRequest* requests, int count) override {
    if (count != result_.rows) {
      throw Error("{} requests for {} rows of logits", count, result_.rows);
    }
    finder_.queue(stream_, result_.logits, result_.argmax, requests, count);
  }
  const TopLogits* fetch(int& count) override {
    if (exchange_) exchange_->wait(stream_);
    return finder_.fetch(count);
  }
  void copy_pages(const KernelPageCopy* copies, int count) override {
    cuda::copy_pages(stream_, w_, copies, count);
  }
  void wait() override {
    if (exchange_) exchange_->wait(stream_);
    check(cudaStreamSynchronize(stream_), "running a step");
  }

  bool has_decode_kernel() const override { return decode_.has_value(); }
  void forward(const std::vector<StepSlice>& slices) override {
    check_bounds(slices.data(), int(slices.size()));
    operators_.clear();
    forward_slices(slices.data(), int(slices.size()), 0);
  }
  void decode(const std::vector<DecodeRow>& rows, int steps) override {
    operators_.clear();
    launch_decode_rows(rows.data(), int(rows.size()), steps);
    result_ = {decode_->logits(), decode_->argmax(), decode_->rows()};
  }
  std::vector<int> argmax_of_steps() override {
    std::vector<int> all(size_t(decode_->rows()) * size_t(decode_->steps()));
    check(cudaMemcpyAsync(all.data(), decode_->argmax_of_steps(), all.size() * sizeof(int),
                          cudaMemcpyDeviceToHost, stream_),
          "copying tokens");
    wait();
    return all;
  }
  std::vector<double> time_forward(const std::vector<StepSlice>& slices, int repeats) override {
    forward(slices);
    return time_each(repeats, [&] { forward_.queue(stream_); });
  }
  std::vector<double> time_decode(const std::vector<DecodeRow>& rows, int steps,
                                  int repeats) override {
    decode(rows, steps);
    return time_each(repeats, [&] { decode_->launch(stream_, false); });
  }

  void keep_times(bool keep) override {
    keep_times_ = keep;
    forward_.timer().enable(keep);
  }
  const OperatorTimes& operators() override { return operators_; }
  std::vector<long long> timestamps() override {
    wait();
    return decode_->timestamps();
  }

  std::vector<float> unpacked(MatrixKind kind, int layer) override {
    return w_.unpacked(stream_, kind, layer);
  }
  std::vector<float> vector(VectorKind kind, int layer) override {
    return w_.host_vector(kind, layer);
  }
  std::vector<float> cached(int layer, int page) override {
    wait();
    return w_.cached(layer, page);
  }
  double weight_bytes() const override { return w_.bytes(); }
  double cache_bytes_per_token() const override {
    return double(w_.shape.layers) * w_.shape.kv_heads * w_.kv_page_bytes() / kPageTokens;
  }
  std::string device() const override {
    const std::string name = properties_.name;
    return kernels_ == KernelSet::portable ? name + ", portable kernels" : name;
  }
  int sms() const override { return properties_.multiProcessorCount; }
  bool has_fp8_products(int tokens) const override {
    const auto uses = [&](int count) {
      return uses_fp8_products(w_.shape, w_.format, kernels_, count, sms());
    };
    return uses(tokens) || uses(std::min(tokens, Linear::kMaxChainedTokens));
  }

 private:
  // The wanted rows of the last step, on the device.
  struct StepResult {
    const float* logits = nullptr;  // [row][vocab]
    const int* argmax = nullptr;    // [row]
    int rows = 0;
  };

  int check_bounds(const StepSlice* slices, int count) const {  // returns the step's tokens
    size_t tokens = 0, rows = 0, pages = 0;
    for (int i = 0; i < count; ++i) {
      if (slices[i].count < 1 || slices[i].logits < 0 || slices[i].logits > slices[i].count) {
        throw Error("a slice of {} tokens and {} rows of logits", slices[i].count,
                    slices[i].logits);
      }
      tokens += size_t(slices[i].count), rows += size_t(slices[i].logits);
      pages += size_t(slices[i].page_count);
      for (int t = 0; t < slices[i].count; ++t) {
        if (-1 - slices[i].tokens[t] >= finder_.chosen_count()) {
          throw Error("row {} of the last step was not sampled", -1 - slices[i].tokens[t]);
        }
      }
    }
    const auto check_bound = [](size_t value, size_t most, const char* what) {
      if (value > most) throw Error("a step of {} {}: this runner takes {}", value, what, most);
    };
    check_bound(tokens, size_t(bounds_.tokens), "tokens");
    check_bound(size_t(count), size_t(bounds_.sequences), "sequences");
    check_bound(rows, size_t(bounds_.logit_rows), "rows of logits");
    check_bound(pages, context_pages(w_.cache_pages), "pages of context");
    if (tokens == 0) throw Error("a step without tokens");
    return int(tokens);
  }

  // The logits come behind those of `rows` rows of the same step. Returns the rows with these.
  int forward_slices(const StepSlice* slices, int count, int rows) {
    inputs_.begin();
    forward_.prepare(inputs_, slices, count, rows);
    inputs_.upload(stream_);
    resolve_sampled(forward_.tokens(), slices, count);
    forward_.queue(stream_);
    result_ = {buffers_.forward.logits, buffers_.forward.argmax, rows + forward_.logit_rows()};
    if (keep_times_) forward_.timer().append_to(operators_);
    return result_.rows;
  }
  void resolve_sampled(int* tokens, const StepSlice* slices, int count) {
    int total = 0;
    bool any = false;
    for (int i = 0; i < count; ++i) {
      total += slices[i].count;
      any = any || std::any_of(slices[i].tokens, slices[i].tokens + slices[i].count,
                               [](TokenInput token) { return token < 0; });
    }
    if (any) resolve_sampled_tokens(stream_, tokens, total, finder_.chosen());
  }

  // One launch of the decode kernel, or several: a launch takes the next tokens of every slice that
  // has some left, and a slice's part of a launch stays within a page, as the kernel requires.
  void decode_slices(const StepSlice* slices, int count, int tokens) {
    int done[kMaxRows] = {}, first_row[kMaxRows] = {}, wanted = 0;
    for (int i = 0; i < count; ++i) {
      first_row[i] = wanted;
      wanted += slices[i].logits;
    }
    for (int finished = 0; finished < tokens;) {
      DecodeRow rows[kMaxRows];
      RowMap map;  // from this launch's rows to the step's wanted ones
      int row = 0;
      for (int i = 0; i < count; ++i) {
        const StepSlice& slice = slices[i];
        const int past = slice.past + done[i], first = row;
        const int part = std::min(kPageTokens - past % kPageTokens, slice.count - done[i]);
        for (int t = done[i]; t < done[i] + part; ++t, ++row) {
          rows[row] = {slice.tokens[t], past, first, slice.pages, slice.page_count};
          const int to = t + slice.logits - slice.count;  // among the slice's wanted rows
          if (to >= 0) map.add(row, first_row[i] + to);
        }
        done[i] += part;
      }
      launch_decode_rows(rows, row, 1);
      finished += row;
      // The usual step, one token with logits of each sequence, needs no copy.
      if (row == tokens && wanted == tokens) {
        result_ = {decode_->logits(), decode_->argmax(), wanted};
        return;
      }
      if (map.count > 0) {
        copy_rows(stream_, map, w_.shape.vocab, decode_->logits(), decode_->argmax(),
                  buffers_.forward.logits, buffers_.forward.argmax);
      }
    }
    result_ = {buffers_.forward.logits, buffers_.forward.argmax, wanted};
  }

  void launch_decode_rows(const DecodeRow* rows, int count, int steps) {
    if (!decode_) throw Error("the decode kernel has no code for this model");
    inputs_.begin();
    decode_->prepare(stream_, inputs_, rows, count, steps);
    inputs_.upload(stream_);
    if (std::any_of(rows, rows + count, [](const DecodeRow& row) { return row.token < 0; })) {
      resolve_sampled_tokens(stream_, decode_->tokens(), count, finder_.chosen());
    }
    if (!keep_times_) return decode_->launch(stream_, false);
    check(cudaEventRecord(start_, stream_), "timing");
    decode_->launch(stream_, true);
    check(cudaEventRecord(stop_, stream_), "timing");
    wait();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start_, stop_), "timing");
    decode_->append_times(ms / 1e3, operators_);
  }

  template <typename Function>
  std::vector<double> time_each(int repeats, const Function& queue) {
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) {
      check(cudaEventRecord(start_, stream_), "timing");
      queue();
      check(cudaEventRecord(stop_, stream_), "timing");
      wait();
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start_, stop_), "timing");
      seconds.push_back(ms / 1e3);
    }
    return seconds;
  }

  cudaDeviceProp properties_;
  KernelSet kernels_;
  StepBounds bounds_;
  std::unique_ptr<RankExchange> exchange_;  // of a part of a model
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  DeviceWeights w_;
  DeviceBuffer<uint8_t> memory_;
  StepBuffers buffers_;
  std::optional<DecodeStep> decode_;  // of models that have the kernel
  Forward forward_;
  StepInputs inputs_;
  TopLogitsFinder finder_;
  StepResult result_;
  PinnedVector host_logits_;
  bool keep_times_ = false;
  OperatorTimes operators_;  // of the last step
};

}  // namespace

DeviceFound find_device() {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess) throw Error("no CUDA device: {}", cudaGetErrorString(found));
  if (devices == 0) throw Error("no CUDA device is there");
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "asking for free memory");
  return {current_device().name, double(available)};
}

KernelSet kernels_of_device() {
  const cudaDeviceProp device = current_device();
  if (device.major < 8) {
    throw Error(
        "{} has compute capability {}.{}, and the CUDA engine needs 8.0 (Ampere) or later: use "
        "--device cpu",
        device.name, device.major, device.minor);
  }
  const char* forced = std::getenv("RIDGE_CUDA_KERNELS");
  const std::string wanted = forced ? forced : "";
  if (!wanted.empty() && wanted != "portable") {
    throw Error("RIDGE_CUDA_KERNELS={}: only portable can be forced", wanted);
  }
  return wanted.empty() && decode_available() ? KernelSet::hopper : KernelSet::portable;
}

double step_bytes(const ModelShape& s, const StepBounds& bounds, int cache_pages) {
  const int sms = current_device().multiProcessorCount;
  const KernelSet kernels = kernels_of_device();
  const bool portable = kernels == KernelSet::portable;
  const size_t split_k =  // two GEMM classes: one for the router
      portable ? PortableGemm::memory_bytes(sms) : 2 * Linear::memory_bytes(sms);
  // Of fp8 and int8, but counted for every format.
  const size_t experts =
      portable ? 0 : ExpertMlp::memory_bytes(s.expert_ffn, max_skinny_slots(s, kernels));
  const auto of_attention = portable ? PortableAttention::memory_bytes : Attention::memory_bytes;
  const AttentionBounds step = attention_bounds(bounds, cache_pages);
  size_t attention = s.latent ? LatentAttention::memory_bytes(sms)
                              : of_attention(s.heads, s.kv_heads, s.head_dim, KvFormat::bf16, step);
  if (s.chunk() > 0) {  // planned apart; as f16, which needs memory for pages as bf16: the most
    attention += of_attention(s.heads, s.kv_heads, s.head_dim, KvFormat::f16,
                              bounds_of_chunks(step, s.chunk()));
  }
  return double(StepBuffers::bytes(s, kernels, bounds, sms) +
                input_bytes(s, kernels, bounds, cache_pages, sms) +
                TopLogitsFinder::memory_bytes(bounds.logit_rows, s.head_columns()) + attention +
                split_k + experts);
}

std::unique_ptr<DeviceModel> DeviceModel::make(const ModelShape& shape, WeightFormat format,
                                               KvFormat kv_format, int cache_pages,
                                               const StepBounds& bounds,
                                               std::unique_ptr<RankExchange> exchange) {
  check_shape(shape, kv_format);
  check_built(format);
  return std::make_unique<CudaModel>(shape, format, kv_format, cache_pages, bounds,
                                     std::move(exchange));
}

}  // namespace ridge::cuda
