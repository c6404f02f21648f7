#include <algorithm>

#include "base/error.h"
#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/device_model.h"
#include "engine/cuda/forward.cuh"
#include "engine/cuda/layout/device_weights.cuh"
#include "engine/cuda/top_logits.cuh"

namespace ridge::cuda {
namespace {

// Whether the decode kernel has code for it.
bool decode_has(const ModelShape& s) {
  return (s.head_dim == 64 || s.head_dim == 128) && s.heads % s.kv_heads == 0 &&
         s.heads / s.kv_heads <= 8 && s.hidden % 64 == 0 && s.ffn % 16 == 0 &&
         s.layers <= kMaxLayers && s.experts == 0 && !s.post_norms && s.ropes.size() == 1;
}

// A vector whose memory is pinned: copies reach it at once.
class Pinned {
 public:
  Pinned() = default;
  ~Pinned() { release(); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::vector<float>& resize(size_t count) {
    if (count > values_.capacity()) {
      release();
      values_.reserve(count);
      check(cudaHostRegister(values_.data(), count * 4, cudaHostRegisterDefault), "pinning memory");
    }
    values_.resize(count);
    return values_;
  }

 private:
  void release() {
    if (values_.capacity() > 0) cudaHostUnregister(values_.data());
  }
  std::vector<float> values_;
};

class HopperModel final : public DeviceModel {
 public:
  HopperModel(const ModelShape& shape, WeightFormat format, KvFormat kv_format, int cache_pages)
      : properties_(properties_of_device()),
        w_(shape, format, kv_format, cache_pages),
        forward_(w_, properties_.multiProcessorCount),
        decodes_(decode_has(shape)) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check(cudaEventCreate(&start_), "making an event");
    check(cudaEventCreate(&stop_), "making an event");
    if (decodes_) reserve_decode();
    check(cudaDeviceSynchronize(), "clearing memory");
  }

  ~HopperModel() override {
    cudaStreamSynchronize(stream_);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }

  void load(MatrixKind part, int layer, const FillRows& first, const FillRows& second,
            int expert) override {
    w_.load(stream_, part, layer, first, second, expert);
  }
  void load(VectorKind which, int layer, const std::vector<float>& values) override {
    w_.load(stream_, which, layer, values);
  }
  void randomize(uint64_t seed, float norm_deviation) override {
    w_.randomize(stream_, seed, norm_deviation);
  }
  void randomize_cache(uint64_t seed) override { w_.randomize_cache(stream_, seed); }

  bool decodes() const override { return decodes_; }
  void forward(const std::vector<ForwardSlice>& slices) override {
    forward_.prepare(stream_, slices);
    forward_.queue(stream_);
    logits_at_ = forward_.logits(), logit_rows_ = forward_.logit_rows();
    decoded_ = false;
  }
  std::vector<double> time_forward(const std::vector<ForwardSlice>& slices, int repeats) override {
    forward(slices);
    return time_each(repeats, [&] { forward_.queue(stream_); });
  }

  void run(const std::vector<DecodeRow>& rows, int steps) override {
    prepare(rows, steps);
    if (keep_stamps_) check(cudaEventRecord(start_, stream_), "timing");
    launch();
    if (keep_stamps_) check(cudaEventRecord(stop_, stream_), "timing");
  }
  void wait() override { check(cudaStreamSynchronize(stream_), "decoding"); }

  const std::vector<float>& logits() override {
    std::vector<float>& to = host_logits_.resize(size_t(logit_rows_) * w_.shape.vocab);
    check(cudaMemcpyAsync(to.data(), logits_at_, to.size() * 4, cudaMemcpyDeviceToHost, stream_),
          "copying logits");
    wait();
    return to;
  }
  std::vector<int> chosen() override {
    std::vector<int> all(size_t(logit_rows_) * (decoded_ ? args_.steps : 1));
    check(cudaMemcpyAsync(all.data(), decoded_ ? chosen_.data() : forward_.chosen(),
                          all.size() * sizeof(int), cudaMemcpyDeviceToHost, stream_),
          "copying tokens");
    wait();
    return all;
  }
  const std::vector<TopLogits>& top_logits(const std::vector<TopLogitsRequest>& requests) override {
    return top_logits_finder_.find(stream_, logits_at_, w_.shape.vocab, requests);
  }

  std::vector<double> time(const std::vector<DecodeRow>& rows, int steps, int repeats) override {
    prepare(rows, steps);
    launch();
    return time_each(repeats, [&] { launch(); });
  }
  void keep_stamps(bool keep) override {
    keep_stamps_ = keep;
    forward_.keep_times(keep);
  }
  std::vector<std::pair<const char*, double>> operators() override {
    if (!decoded_) return forward_.operators();
    // The clocks of SM 0 stretched over the kernel.
    static constexpr const char* kNames[] = {"qkv", "attention", "out", "gate_up", "down"};
    const std::vector<long long> at = stamps();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start_, stop_), "timing");
    const int each = ops_per_step(w_.shape.layers), all = each * args_.steps;
    const double begin = double(at[2]), clocks = double(at[size_t(all) * 3 - 1]) - begin;
    std::vector<std::pair<const char*, double>> times;
    double before = begin;
    const char* waits = "meetings";
    for (int i = 1; i < all; ++i) {
      const int o = i % each;
      const char* name = o == 0 ? "embed" : o == each - 1 ? "lm_head" : kNames[(o - 1) % 5];
      const auto add = [&](const char* what, long long until) {
        times.emplace_back(what, (double(until) - before) / clocks * ms / 1e3);
        before = double(until);
      };
      const bool idle = o != 0 && double(at[size_t(i) * 3]) < before;
      if (o != 0 && !idle) add(waits, at[size_t(i) * 3]);
      add(name, at[size_t(i) * 3 + 2]);
      waits = idle ? name : "meetings";  // it waits for those who have a part
    }
    return times;
  }
  std::vector<long long> stamps() override {
    wait();
    std::vector<long long> all = stamps_.host();
    return all;
  }

  std::vector<float> unpacked(MatrixKind part, int layer) override {
    return w_.unpacked(stream_, part, layer);
  }
  std::vector<float> vector(VectorKind which, int layer) override {
    return w_.host_vector(which, layer);
  }
  std::vector<float> cached(int layer, int page) override {
    wait();
    return w_.cached(layer, page);
  }
  double weight_bytes() const override { return w_.bytes(); }
  double cache_bytes_per_token() const override {
    return double(w_.shape.layers) * w_.shape.kv_heads * w_.kv_page_bytes() / kPageTokens;
  }
  std::string device() const override { return properties_.name; }
  int sms() const override { return properties_.multiProcessorCount; }

 private:
  static cudaDeviceProp properties_of_device() {
    cudaDeviceProp properties;
    int index = 0;
    check(cudaGetDevice(&index), "finding a device");
    check(cudaGetDeviceProperties(&properties, index), "asking for the device");
    if (!decode_available()) {
      throw Error(
          "{} (compute capability {}.{}) lacks Hopper's copies and products, which the "
          "CUDA engine needs: use --device cpu",
          properties.name, properties.major, properties.minor);
    }
    return properties;
  }

  template <typename Function>
  std::vector<double> time_each(int repeats, const Function& function) {
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) {
      check(cudaEventRecord(start_, stream_), "timing");
      function();
      check(cudaEventRecord(stop_, stream_), "timing");
      wait();
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start_, stop_), "timing");
      seconds.push_back(ms / 1e3);
    }
    return seconds;
  }

  void reserve_decode() {
    const ModelShape& shape = w_.shape;
    const int group = shape.heads / shape.kv_heads;
    residual_ = DeviceBuffer<float>(size_t(kMaxRows) * shape.hidden);
    normed_ = DeviceBuffer<uint16_t>(3 * activations(shape.hidden));
    attended_ = DeviceBuffer<uint16_t>(activations(w_.q_columns()));
    activated_ = DeviceBuffer<uint16_t>(activations(shape.ffn));
    squares_ = DeviceBuffer<float>(size_t(3) * kMaxRows * shape.hidden / kBlockRows);
    squares_.fill_bytes(0xff);
    qkv_rows_ = DeviceBuffer<float>(size_t(kMaxRows) * w_.qkv_rows());
    partial_ = DeviceBuffer<float>(size_t(kMaxRows) * std::max(sms(), shape.kv_heads) * group *
                                   (shape.head_dim + 2));
    arrived_ = DeviceBuffer<unsigned>(size_t(kMaxRows) * shape.kv_heads);
    arrived_.fill_bytes(0);
    logits_ = DeviceBuffer<float>(size_t(kMaxRows) * shape.vocab);
    best_ = DeviceBuffer<unsigned long long>(size_t(kMaxRows) * sms() * 3);
    meeting_ = DeviceBuffer<unsigned>(2);
    meeting_.fill_bytes(0);
    rows_ = DeviceBuffer<RowContext>(kMaxRows);
    tokens_ = DeviceBuffer<int>(kMaxRows);
  }

  // Elements of a buffer. A chunk's columns beyond the matrix meet zero weights, but must be
  // numbers.
  static int activations(int columns) { return kMaxRows * (columns + 64); }
  // The matrix's columns are absent, those beyond zero.
  void clear(uint16_t* x, int columns) {
    const size_t bytes = size_t(columns) * padded_rows_ * 2;
    check(cudaMemsetAsync(x, kNotReady & 0xff, bytes, stream_), "clearing");
    check(cudaMemsetAsync(x + bytes / 2, 0, size_t(activations(columns)) * 2 - bytes, stream_),
          "clearing");
  }

  void prepare(const std::vector<DecodeRow>& rows, int steps) {
    if (rows.empty() || rows.size() > size_t{kMaxRows}) {
      throw Error("{} tokens in a step of at most {}", rows.size(), kMaxRows);
    }
    if (!decodes_) throw Error("the decode kernel has no code for this model");
    const ModelShape& shape = w_.shape;
    std::vector<RowContext> table;
    std::vector<int> tokens, pages;
    int most = 0;
    for (const DecodeRow& row : rows) {
      table.push_back({row.past, row.first, static_cast<int>(pages.size())});
      tokens.push_back(row.token);
      pages.insert(pages.end(), row.pages, row.pages + row.page_count);
      most = std::max(most, row.past + static_cast<int>(table.size()) - 1 - row.first);
    }
    if (pages_.size() < pages.size()) pages_ = DeviceBuffer<int>(pages.size() * 2);
    if (chosen_.size() < rows.size() * steps) chosen_ = DeviceBuffer<int>(rows.size() * steps * 2);
    if (const size_t count = size_t(ops_per_step(shape.layers)) * steps * 3;
        keep_stamps_ && stamps_.size() < count) {
      stamps_ = DeviceBuffer<long long>(count);
    }
    rows_.copy_from(table.data(), table.size(), stream_);
    tokens_.copy_from(tokens.data(), tokens.size(), stream_);
    pages_.copy_from(pages.data(), pages.size(), stream_);

    if (const int padded = padded_rows(static_cast<int>(rows.size())); padded != padded_rows_) {
      padded_rows_ = padded;
      for (int i = 0; i < 3; ++i)
        clear(normed_.data() + i * activations(shape.hidden), shape.hidden);
      clear(attended_.data(), w_.q_columns());
      clear(activated_.data(), shape.ffn);
    }

    DecodeArgs a = {};
    a.layers = shape.layers, a.hidden = shape.hidden, a.heads = shape.heads;
    a.kv_heads = shape.kv_heads, a.head_dim = shape.head_dim, a.ffn = shape.ffn;
    a.vocab = shape.vocab, a.activation = shape.gelu ? Activation::gelu_tanh : Activation::silu;
    a.norm_eps = shape.norm_eps, a.embed_scale = shape.embed_scale;
    a.query_scale = shape.query_scale, a.attention_softcap = shape.attention_softcap;
    a.logit_softcap = shape.logit_softcap;
    std::copy(shape.window.begin(), shape.window.end(), a.window);
    a.embed = w_.embed.data(), a.qkv = w_.qkv.tiles, a.out = w_.out.tiles;
    a.gate_up = w_.gate_up.tiles;
    a.down = w_.down.tiles, a.head = w_.head.tiles;
    a.attn_norm = w_.vector(VectorKind::attn_norm, 0);
    a.mlp_norm = w_.vector(VectorKind::mlp_norm, 0);
    a.final_norm = w_.vector(VectorKind::final_norm, 0),
    a.q_norm = w_.vector(VectorKind::q_norm, 0);
    a.k_norm = w_.vector(VectorKind::k_norm, 0), a.qkv_bias = w_.vector(VectorKind::qkv_bias, 0);
    a.rope_frequency = w_.ropes.data();
    a.rope_magnitude = shape.ropes[0].magnitude;
    a.kv_format = w_.kv_format, a.kv = w_.kv.data(), a.cache_pages = w_.cache_pages;
    a.rows = rows_.data(), a.pages = pages_.data(), a.tokens = tokens_.data();
    a.row_count = static_cast<int>(rows.size()), a.max_position = most, a.steps = steps;
    a.residual = residual_.data(), a.normed = normed_.data(), a.sums_of_squares = squares_.data();
    a.normed_stride = activations(shape.hidden);
    a.qkv_out = qkv_rows_.data(), a.attention_out = attended_.data(),
    a.mlp_hidden = activated_.data();
    a.split_partials = partial_.data(), a.split_arrivals = arrived_.data(),
    a.logits = logits_.data();
    a.argmax_keys = best_.data(), a.next_tokens = chosen_.data(), a.grid_barrier = meeting_.data();
    a.timestamps = keep_stamps_ ? stamps_.data() : nullptr;
    args_ = a;
    logits_at_ = logits_.data(), logit_rows_ = a.row_count, decoded_ = true;
  }

  void launch() {
    std::copy(met_, met_ + 2, args_.grid_barrier_base);
    launch_decode(stream_, sms(), w_.format, args_);
    const int operators = ops_per_step(w_.shape.layers) * args_.steps;
    met_[0] += static_cast<unsigned>((operators + 1) / 2 * sms());
    met_[1] += static_cast<unsigned>(operators / 2 * sms());
  }

  cudaDeviceProp properties_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  DeviceWeights w_;
  Forward forward_;
  bool decodes_;
  const float* logits_at_ = nullptr;  // of the last step, and its rows
  int logit_rows_ = 0;
  bool decoded_ = false;  // the last step by the decode kernel
  Pinned host_logits_;
  TopLogitsFinder top_logits_finder_;
  DeviceBuffer<uint16_t> normed_, attended_, activated_;
  DeviceBuffer<float> residual_, squares_, qkv_rows_, partial_, logits_;
  DeviceBuffer<unsigned> arrived_, meeting_;
  DeviceBuffer<unsigned long long> best_;
  DeviceBuffer<int> chosen_, tokens_, pages_;
  DeviceBuffer<RowContext> rows_;
  DeviceBuffer<long long> stamps_;
  DecodeArgs args_ = {};
  unsigned met_[2] = {0, 0};
  int padded_rows_ = 0;
  bool keep_stamps_ = false;
};

}  // namespace

DeviceFound find_device() {
  int devices = 0, index = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess) throw Error("no CUDA device: {}", cudaGetErrorString(found));
  if (devices == 0) throw Error("no CUDA device is there");
  cudaDeviceProp properties;
  check(cudaGetDevice(&index), "finding a device");
  check(cudaGetDeviceProperties(&properties, index), "asking for the device");
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "asking for free memory");
  return {properties.name, double(available)};
}

std::unique_ptr<DeviceModel> DeviceModel::make(const ModelShape& shape, WeightFormat format,
                                               KvFormat kv_format, int cache_pages) {
  find_device();
  return std::make_unique<HopperModel>(shape, format, kv_format, cache_pages);
}

}  // namespace ridge::cuda
