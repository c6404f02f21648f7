#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/cuda/decode.cuh"
#include "engine/cuda/decoder.h"
#include "engine/cuda/device.cuh"
#include "engine/cuda/pack.cuh"

namespace ridge::cuda {
namespace {

int blocks_of(int rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// The matrices of all layers, one after the other.
struct Matrices {
  Matrices() = default;
  Matrices(WeightFormat format, int layers, int rows, int columns) : columns(columns) {
    const FormatInfo info = format_info(format);
    tiles.blocks = blocks_of(rows);
    tiles.chunks = (columns + info.columns - 1) / info.columns;
    tiles.stride = size_t(tiles.blocks) * tiles.chunks * info.chunk_bytes;
    data = Buffer<uint8_t>(tiles.stride * layers);
    if (format == WeightFormat::fp8) {
      scales = Buffer<float>(size_t(layers) * tiles.blocks * kBlockRows);
    }
    tiles.data = data.data();
    tiles.row_scale = scales.data();
  }
  uint8_t* at(int layer, int block) {
    return data.data() + layer * tiles.stride + tiles.stride / tiles.blocks * block;
  }
  float* scale_at(int layer, int block) {
    return scales.size() ? scales.data() + (size_t(layer) * tiles.blocks + block) * kBlockRows
                         : nullptr;
  }
  Tiles tiles;
  int columns = 0;
  Buffer<uint8_t> data;
  Buffer<float> scales;
};

void check_shape(const DecoderShape& s) {
  const auto refuse = [](const std::string& what) {
    throw Error("the CUDA decode kernel has no code for {}", what);
  };
  if (s.head_dim != 64 && s.head_dim != 128) refuse(fmt::format("heads of {}", s.head_dim));
  if (s.heads % s.kv_heads || s.heads / s.kv_heads > 8) {
    refuse(fmt::format("{} heads that share {} KV heads", s.heads, s.kv_heads));
  }
  if (s.hidden % 64 || s.ffn % 16) refuse(fmt::format("{} x {} columns", s.hidden, s.ffn));
  if (s.layers > kMaxLayers) refuse(fmt::format("{} layers", s.layers));
}

class DeviceDecoder final : public Decoder {
 public:
  DeviceDecoder(const DecoderShape& shape, WeightFormat format, int cache_pages)
      : shape_(shape), format_(format) {
    int index = 0;
    check(cudaGetDevice(&index), "finding a device");
    check(cudaGetDeviceProperties(&properties_, index), "asking for the device");
    if (!decode_available()) {
      throw Error("{} (compute capability {}.{}) lacks Hopper's bulk copies, which decoding needs",
                  properties_.name, properties_.major, properties_.minor);
    }
    check_shape(shape);
    const int qkv_rows = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    const int q_columns = shape.heads * shape.head_dim;
    const size_t kv_elements =
        size_t(shape.layers) * cache_pages * shape.kv_heads * page_elements(shape.head_dim);
    qkv_ = Matrices(format, shape.layers, qkv_rows, shape.hidden);
    out_ = Matrices(format, shape.layers, shape.hidden, q_columns);
    gate_up_ = Matrices(format, shape.layers, 2 * shape.ffn, shape.hidden);
    down_ = Matrices(format, shape.layers, shape.hidden, shape.ffn);
    head_ = Matrices(format, 1, shape.vocab, shape.hidden);
    embed_ = Buffer<uint16_t>(size_t(shape.vocab) * shape.hidden);
    attn_norm_ = Buffer<float>(size_t(shape.layers) * shape.hidden);
    mlp_norm_ = Buffer<float>(size_t(shape.layers) * shape.hidden);
    final_norm_ = Buffer<float>(shape.hidden);
    if (shape.qk_norm) {
      q_norm_ = Buffer<float>(size_t(shape.layers) * shape.head_dim);
      k_norm_ = Buffer<float>(size_t(shape.layers) * shape.head_dim);
    }
    if (shape.qkv_bias) {
      bias_ = Buffer<float>(size_t(shape.layers) * qkv_rows);
      bias_.fill_bytes(0);
    }
    rope_ = Buffer<float>(shape.rope_frequency.size());
    rope_.copy_from(shape.rope_frequency.data(), shape.rope_frequency.size());
    kv_ = Buffer<uint16_t>(kv_elements);
    kv_.fill_bytes(0);

    const int sms = properties_.multiProcessorCount, group = shape.heads / shape.kv_heads;
    residual_ = Buffer<float>(size_t(kMaxRows) * shape.hidden);
    // A chunk's columns beyond the matrix meet zero weights, but must be numbers.
    const auto activations = [](int columns) {
      Buffer<uint16_t> buffer(size_t(kMaxRows) * (columns + 64));
      buffer.fill_bytes(0);
      return buffer;
    };
    normed_ = activations(shape.hidden);
    attended_ = activations(q_columns);
    activated_ = activations(shape.ffn);
    squares_ = Buffer<float>(size_t(kMaxRows) * shape.hidden / kBlockRows);
    qkv_rows_ = Buffer<float>(size_t(kMaxRows) * qkv_rows);
    partial_ = Buffer<float>(size_t(kMaxRows) * std::max(sms, shape.kv_heads) * group *
                             (shape.head_dim + 2));
    arrived_ = Buffer<unsigned>(size_t(kMaxRows) * shape.kv_heads);
    arrived_.fill_bytes(0);
    logits_ = Buffer<float>(size_t(kMaxRows) * shape.vocab);
    best_ = Buffer<unsigned long long>(size_t(kMaxRows) * sms * 3);
    meeting_ = Buffer<unsigned>(1);
    meeting_.fill_bytes(0);
    rows_ = Buffer<Row>(kMaxRows);
    tokens_ = Buffer<int>(kMaxRows);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check(cudaEventCreate(&start_), "making an event");
    check(cudaEventCreate(&stop_), "making an event");
    check(cudaDeviceSynchronize(), "clearing memory");
    cache_pages_ = cache_pages;
  }

  ~DeviceDecoder() override {
    cudaStreamSynchronize(stream_);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }

  void load(Part part, int layer, const FillRows& first, const FillRows& second) override {
    const auto [rows, columns] = source_size(part);
    upload(first, rows, columns, plain_[0]);
    if (second) upload(second, rows, columns, plain_[1]);
    place(part, layer, plain_[0].data(), second ? plain_[1].data() : nullptr);
    check(cudaStreamSynchronize(stream_), "packing weights");
  }

  void load(Vectors which, int layer, const std::vector<float>& values) override {
    const auto [data, size] = vector_at(which, layer);
    if (size != values.size()) throw Error("a vector of {} where {} belong", values.size(), size);
    check(cudaMemcpyAsync(data, values.data(), size * 4, cudaMemcpyHostToDevice, stream_),
          "copying");
    wait();
  }

  void randomize(uint64_t seed, float norm_deviation) override {
    constexpr float kDeviation = 0.02f;
    uint64_t next = seed * 1000003;
    const auto make = [&](Part part, int layer) {
      const auto [rows, columns] = source_size(part);
      for (Buffer<uint16_t>& plain : plain_) {
        if (plain.size() < size_t(rows) * columns) plain = Buffer<uint16_t>(size_t(rows) * columns);
        fill_normal(stream_, plain.data(), size_t(rows) * columns, ++next, kDeviation);
      }
      place(part, layer, plain_[0].data(), part == Part::gate_up ? plain_[1].data() : nullptr);
    };
    make(Part::embed, 0);
    make(Part::head, 0);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (const Part part : {Part::q, Part::k, Part::v, Part::out, Part::gate_up, Part::down}) {
        make(part, layer);
      }
    }
    for (Buffer<float>* norm : {&attn_norm_, &mlp_norm_, &final_norm_, &q_norm_, &k_norm_}) {
      if (norm->size()) {
        fill_normal(stream_, norm->data(), norm->size(), ++next, norm_deviation, 1.0f);
      }
    }
    if (bias_.size()) fill_normal(stream_, bias_.data(), bias_.size(), ++next, 0.1f, 0.0f);
    check(cudaStreamSynchronize(stream_), "making random weights");
    for (Buffer<uint16_t>& plain : plain_) plain = Buffer<uint16_t>();
  }

  void randomize_cache(uint64_t seed) override {
    fill_normal(stream_, kv_.data(), kv_.size(), seed, 1.0f);
    check(cudaStreamSynchronize(stream_), "filling the cache");
  }

  void run(const std::vector<DecodeRow>& rows, int steps) override {
    prepare(rows, steps);
    launch();
  }
  void wait() override { check(cudaStreamSynchronize(stream_), "decoding"); }

  const std::vector<float>& logits() override {
    wait();
    host_logits_.resize(size_t(args_.row_count) * shape_.vocab);
    check(cudaMemcpy(host_logits_.data(), logits_.data(), host_logits_.size() * 4,
                     cudaMemcpyDeviceToHost),
          "copying logits");
    return host_logits_;
  }
  std::vector<int> chosen() override {
    wait();
    std::vector<int> all = chosen_.host();
    all.resize(size_t(args_.steps) * args_.row_count);
    return all;
  }

  std::vector<double> time(const std::vector<DecodeRow>& rows, int steps, int repeats) override {
    std::vector<double> seconds;
    prepare(rows, steps);
    launch();
    for (int i = 0; i < repeats; ++i) {
      check(cudaEventRecord(start_, stream_), "timing");
      launch();
      check(cudaEventRecord(stop_, stream_), "timing");
      wait();
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start_, stop_), "timing");
      seconds.push_back(ms / 1e3);
    }
    return seconds;
  }
  void keep_stamps(bool keep) override { keep_stamps_ = keep; }
  std::vector<long long> stamps() override {
    wait();
    std::vector<long long> all = stamps_.host();
    return all;
  }

  std::vector<float> unpacked(Part part, int layer) override {
    if (part == Part::embed) {
      std::vector<float> values;
      for (const uint16_t bits : embed_.host()) {
        const uint32_t wide = uint32_t{bits} << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        values.push_back(value);
      }
      return values;
    }
    Matrices& m = matrices(part);
    Buffer<float> all(size_t(m.tiles.blocks) * kBlockRows * m.tiles.chunks *
                      format_info(format_).columns);
    unpack(stream_, format_, m.at(layer, 0), m.scale_at(layer, 0), m.tiles.blocks, m.tiles.chunks,
           all.data());
    wait();
    return all.host();
  }
  std::vector<float> vector(Vectors which, int layer) override {
    const auto [data, size] = vector_at(which, layer);
    std::vector<float> values(size);
    check(cudaMemcpy(values.data(), data, size * 4, cudaMemcpyDeviceToHost), "copying");
    return values;
  }

  double weight_bytes() const override {
    double bytes = 0;
    for (const Matrices* m : {&qkv_, &out_, &gate_up_, &down_, &head_}) {
      bytes += double(m->data.size()) + 4.0 * double(m->scales.size());
    }
    return bytes;
  }
  double cache_bytes_per_token() const override {
    return 2.0 * shape_.layers * shape_.kv_heads * shape_.head_dim * 2;
  }
  std::string device() const override { return properties_.name; }
  int sms() const override { return properties_.multiProcessorCount; }

 private:
  std::pair<int, int> source_size(Part part) const {
    const int q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    switch (part) {
      case Part::q:
        return {q, shape_.hidden};
      case Part::k:
      case Part::v:
        return {kv, shape_.hidden};
      case Part::out:
        return {shape_.hidden, q};
      case Part::gate_up:
        return {shape_.ffn, shape_.hidden};
      case Part::down:
        return {shape_.hidden, shape_.ffn};
      default:
        return {shape_.vocab, shape_.hidden};
    }
  }

  Matrices& matrices(Part part) {
    switch (part) {
      case Part::out:
        return out_;
      case Part::gate_up:
        return gate_up_;
      case Part::down:
        return down_;
      case Part::head:
        return head_;
      default:
        return qkv_;
    }
  }

  void place(Part part, int layer, const uint16_t* first, const uint16_t* second) {
    const auto [rows, columns] = source_size(part);
    if (part == Part::embed) {
      check(cudaMemcpyAsync(embed_.data(), first, embed_.size() * 2, cudaMemcpyDeviceToDevice,
                            stream_),
            "copying");
      return;
    }
    const int q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    const int row = part == Part::k ? q : part == Part::v ? q + kv : 0;
    Matrices& m = matrices(part);
    pack(stream_, format_, first, second, rows, columns, m.at(layer, row / kBlockRows),
         m.scale_at(layer, row / kBlockRows), m.tiles.chunks);
    check(cudaGetLastError(), "packing weights");
  }

  // In pieces: no second copy of the matrix on the host.
  void upload(const FillRows& fill, int rows, int columns, Buffer<uint16_t>& to) {
    if (to.size() < size_t(rows) * columns) to = Buffer<uint16_t>(size_t(rows) * columns);
    const int64_t piece = std::max<int64_t>(1, (int64_t{8} << 20) / columns);
    staging_.resize(size_t(piece) * columns);
    for (int64_t at = 0; at < rows; at += piece) {
      const int64_t count = std::min<int64_t>(piece, rows - at);
      fill(at, count, staging_.data());
      // In the stream that packs: a plain cudaMemcpy returns when the pageable source is staged,
      // not when it has arrived, and this stream does not wait for the default one.
      check(cudaMemcpyAsync(to.data() + at * columns, staging_.data(), count * columns * 2,
                            cudaMemcpyHostToDevice, stream_),
            "copying weights");
    }
  }

  std::pair<float*, size_t> vector_at(Vectors which, int layer) const {
    const size_t h = shape_.hidden, d = shape_.head_dim;
    const size_t qkv = size_t(shape_.heads + 2 * shape_.kv_heads) * d;
    switch (which) {
      case Vectors::attn_norm:
        return {attn_norm_.data() + layer * h, h};
      case Vectors::mlp_norm:
        return {mlp_norm_.data() + layer * h, h};
      case Vectors::final_norm:
        return {final_norm_.data(), h};
      case Vectors::q_norm:
        return {q_norm_.data() + layer * d, d};
      case Vectors::k_norm:
        return {k_norm_.data() + layer * d, d};
      case Vectors::qkv_bias:
        return {bias_.data() + layer * qkv, qkv};
    }
    return {};
  }

  void prepare(const std::vector<DecodeRow>& rows, int steps) {
    if (rows.empty() || rows.size() > size_t{kMaxRows}) {
      throw Error("{} tokens in a step of at most {}", rows.size(), kMaxRows);
    }
    std::vector<Row> table;
    std::vector<int> tokens, pages;
    int most = 0;
    for (const DecodeRow& row : rows) {
      table.push_back({row.past, row.first, static_cast<int>(pages.size())});
      tokens.push_back(row.token);
      pages.insert(pages.end(), row.pages, row.pages + row.page_count);
      most = std::max(most, row.past + static_cast<int>(table.size()) - 1 - row.first);
    }
    if (pages_.size() < pages.size()) pages_ = Buffer<int>(pages.size() * 2);
    if (chosen_.size() < rows.size() * steps) chosen_ = Buffer<int>(rows.size() * steps * 2);
    if (keep_stamps_)
      stamps_ = Buffer<long long>(size_t(ops_of_step(shape_.layers)) * steps * 4 + 16);
    rows_.copy_from(table.data(), table.size(), stream_);
    tokens_.copy_from(tokens.data(), tokens.size(), stream_);
    pages_.copy_from(pages.data(), pages.size(), stream_);

    // Columns that pad a chunk must be zeros, and lie elsewhere for another number of rows.
    if (const int padded = padded_rows(static_cast<int>(rows.size())); padded != padded_rows_) {
      for (Buffer<uint16_t>* x : {&normed_, &attended_, &activated_}) {
        check(cudaMemsetAsync(x->data(), 0, x->size() * 2, stream_), "clearing");
      }
      padded_rows_ = padded;
    }

    DecodeArgs a = {};
    a.layers = shape_.layers, a.hidden = shape_.hidden, a.heads = shape_.heads;
    a.kv_heads = shape_.kv_heads, a.head_dim = shape_.head_dim, a.ffn = shape_.ffn;
    a.vocab = shape_.vocab, a.gate = shape_.gelu ? Gate::gelu_tanh : Gate::silu;
    a.norm_eps = shape_.norm_eps, a.embed_scale = shape_.embed_scale;
    a.query_scale = shape_.query_scale, a.attention_softcap = shape_.attention_softcap;
    a.logit_softcap = shape_.logit_softcap;
    std::copy(shape_.window.begin(), shape_.window.end(), a.window);
    a.embed = embed_.data(), a.qkv = qkv_.tiles, a.out = out_.tiles, a.gate_up = gate_up_.tiles;
    a.down = down_.tiles, a.head = head_.tiles, a.attn_norm = attn_norm_.data();
    a.mlp_norm = mlp_norm_.data(), a.final_norm = final_norm_.data(), a.q_norm = q_norm_.data();
    a.k_norm = k_norm_.data(), a.qkv_bias = bias_.data(), a.rope_frequency = rope_.data();
    a.rope_magnitude = shape_.rope_magnitude, a.kv = kv_.data(), a.cache_pages = cache_pages_;
    a.rows = rows_.data(), a.pages = pages_.data(), a.tokens = tokens_.data();
    a.row_count = static_cast<int>(rows.size()), a.most_position = most, a.steps = steps;
    a.residual = residual_.data(), a.normed = normed_.data(), a.squares = squares_.data();
    a.qkv_rows = qkv_rows_.data(), a.attended = attended_.data(), a.activated = activated_.data();
    a.partial = partial_.data(), a.arrived = arrived_.data(), a.logits = logits_.data();
    a.best = best_.data(), a.chosen = chosen_.data(), a.meeting = meeting_.data();
    a.stamps = keep_stamps_ ? stamps_.data() : nullptr;
    args_ = a;
  }

  void launch() {
    args_.met = met_;
    launch_decode(stream_, sms(), format_, args_);
    met_ += static_cast<unsigned>(ops_of_step(shape_.layers) * args_.steps * sms());
  }

  DecoderShape shape_;
  WeightFormat format_;
  cudaDeviceProp properties_ = {};
  int cache_pages_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  Matrices qkv_, out_, gate_up_, down_, head_;
  Buffer<uint16_t> embed_, kv_, normed_, attended_, activated_;
  Buffer<float> attn_norm_, mlp_norm_, final_norm_, q_norm_, k_norm_, bias_, rope_;
  Buffer<float> residual_, squares_, qkv_rows_, partial_, logits_;
  Buffer<unsigned> arrived_, meeting_;
  Buffer<unsigned long long> best_;
  Buffer<int> chosen_, tokens_, pages_;
  Buffer<Row> rows_;
  Buffer<long long> stamps_;
  Buffer<uint16_t> plain_[2];
  std::vector<uint16_t> staging_;
  std::vector<float> host_logits_;
  DecodeArgs args_ = {};
  unsigned met_ = 0;
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

std::unique_ptr<Decoder> Decoder::make(const DecoderShape& shape, WeightFormat format,
                                       int cache_pages) {
  find_device();
  return std::make_unique<DeviceDecoder>(shape, format, cache_pages);
}

}  // namespace ridge::cuda
