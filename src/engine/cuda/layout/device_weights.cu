#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstring>

#include "engine/cuda/layout/device_weights.cuh"
#include "engine/cuda/layout/pack.cuh"

namespace ridge::cuda {

Matrices::Matrices(WeightFormat weight_format, int count, int row_count, int columns)
    : format(weight_format), rows(row_count) {
  const FormatInfo info = format_info(format);
  tiles.blocks = (rows + kBlockRows - 1) / kBlockRows;
  tiles.chunks = (columns + info.columns - 1) / info.columns;
  tiles.stride = size_t(tiles.blocks) * tiles.chunks * info.chunk_bytes;
  data = DeviceBuffer<uint8_t>(tiles.stride * count);
  if (has_row_scale(format))
    scales = DeviceBuffer<float>(size_t(count) * tiles.blocks * kBlockRows);
  tiles.data = data.data();
  tiles.row_scale = scales.data();
}

uint8_t* Matrices::at(int index, int block) const {
  return data.data() + index * tiles.stride + tiles.stride / tiles.blocks * block;
}
float* Matrices::scale_at(int index, int block) const {
  return scales.size() ? scales.data() + (size_t(index) * tiles.blocks + block) * kBlockRows
                       : nullptr;
}

DeviceWeights::DeviceWeights(const ModelShape& s, WeightFormat weight_format, KvFormat kept,
                             int pages)
    : shape(s), format(weight_format), kv_format(kept), cache_pages(pages) {
  int dense = 0, sparse = 0;
  for (int layer = 0; layer < s.layers; ++layer) {
    place_.push_back(s.is_moe(layer) ? sparse++ : dense++);
  }
  const WeightFormat dense_weights = dense_format(format);
  qkv = Matrices(dense_weights, s.layers, qkv_rows(), s.hidden);
  out = Matrices(dense_weights, s.layers, s.hidden, out_columns());
  if (s.latent) make_latents();
  if (dense > 0) {
    gate_up = Matrices(dense_weights, dense, 2 * s.ffn, s.hidden);
    down = Matrices(dense_weights, dense, s.hidden, s.ffn);
  }
  if (sparse > 0) {
    router = Matrices(WeightFormat::bf16, sparse, s.experts, s.hidden);
    expert_gate_up = Matrices(format, sparse * s.experts_here(), 2 * s.expert_ffn, s.hidden);
    expert_down = Matrices(format, sparse * s.experts_here(), s.hidden, s.expert_ffn);
  }
  if (sparse > 0 && s.shared_ffn > 0) {
    shared_gate_up = Matrices(dense_weights, sparse, 2 * s.shared_ffn, s.hidden);
    shared_down = Matrices(dense_weights, sparse, s.hidden, s.shared_ffn);
  }
  if (s.head_columns() > 0) head = Matrices(dense_weights, 1, s.head_columns(), s.hidden);
  if (s.embeds) embed = DeviceBuffer<uint16_t>(size_t(s.embedded_tokens()) * s.hidden);
  const size_t norms = size_t(s.layers) * s.hidden, heads = size_t(s.layers) * s.head_dim;
  attn_norm_ = DeviceBuffer<float>(norms);
  mlp_norm_ = DeviceBuffer<float>(norms);
  final_norm_ = DeviceBuffer<float>(s.hidden);
  if (s.post_norms)
    post_attn_norm_ = DeviceBuffer<float>(norms), post_mlp_norm_ = DeviceBuffer<float>(norms);
  if (s.qk_norm) q_norm_ = DeviceBuffer<float>(heads), k_norm_ = DeviceBuffer<float>(heads);
  if (s.qkv_bias) {
    bias_ = DeviceBuffer<float>(size_t(s.layers) * qkv_rows());
    bias_.fill_bytes(0);
  }
  const auto make_biases = [&](DeviceBuffer<float>& to, int each) {
    to = DeviceBuffer<float>(size_t(s.layers) * each);
    to.fill_bytes(0);
  };
  if (s.out_bias) make_biases(out_bias_, s.hidden);
  if (s.sinks) make_biases(sinks_, s.heads);
  if (s.expert_bias) {
    make_biases(router_bias_, router_rows());
    make_biases(expert_gate_up_bias_, s.experts * 2 * s.expert_ffn);
    make_biases(expert_down_bias_, s.experts * s.hidden);
  }
  if (s.routing.correction) make_biases(router_correction_, s.experts);
  std::vector<float> frequencies;
  for (const ModelShape::RopeTable& rope : s.ropes) {
    frequencies.insert(frequencies.end(), rope.frequency.begin(), rope.frequency.end());
  }
  ropes = DeviceBuffer<float>(frequencies.size());
  ropes.copy_from(frequencies.data(), frequencies.size());
  kv = DeviceBuffer<uint8_t>(size_t(s.layers) * pages * s.kv_heads * kv_page_bytes());
  kv.fill_bytes(0);
}

void DeviceWeights::make_latents() {
  const ModelShape::Latent& latent = shape.latent;
  const int heads = shape.layers * shape.heads;
  const WeightFormat dense_weights = dense_format(format);
  absorb = Matrices(dense_weights, heads, latent.kv_rank, latent.nope);
  expand = Matrices(dense_weights, heads, latent.value, latent.kv_rank);
  kv_a_norm_ = DeviceBuffer<float>(size_t(shape.layers) * latent.kv_rank);
  if (latent.q_rank == 0) return;
  q_b = Matrices(dense_weights, shape.layers, shape.heads * latent.q_head(), latent.q_rank);
  q_a_norm_ = DeviceBuffer<float>(size_t(shape.layers) * latent.q_rank);
}

void DeviceWeights::load(cudaStream_t stream, MatrixKind kind, int layer, const FillRows& first,
                         const FillRows& second, int expert) {
  const auto [rows, columns] = source_size(kind);
  upload_.queue(stream, first, rows, columns, plain_[0]);
  if (second) upload_.queue(stream, second, rows, columns, plain_[1]);
  int index = layer;
  if (kind == MatrixKind::gate_up || kind == MatrixKind::down || kind == MatrixKind::router ||
      kind == MatrixKind::shared_gate_up || kind == MatrixKind::shared_down) {
    index = place_of(layer);
  }
  if (kind == MatrixKind::expert_gate_up || kind == MatrixKind::expert_down) {
    index = place_of(layer) * shape.experts_here() + expert - shape.expert_first;
  }
  if (kind == MatrixKind::absorb || kind == MatrixKind::expand)
    index = layer * shape.heads + expert;
  place(stream, kind, index, plain_[0].data(), second ? plain_[1].data() : nullptr);
}

void DeviceWeights::finish_loading(cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "packing weights");
  for (DeviceBuffer<uint16_t>& plain : plain_) plain = DeviceBuffer<uint16_t>();
  upload_.release();
}

void DeviceWeights::load(cudaStream_t stream, VectorKind kind, int layer,
                         const std::vector<float>& values) {
  const auto [data, size] = vector_at(kind, layer);
  if (size != values.size())
    throw Error("a vector of {} elements where the model has {}", values.size(), size);
  check(cudaMemcpyAsync(data, values.data(), size * 4, cudaMemcpyHostToDevice, stream), "copying");
  check(cudaStreamSynchronize(stream), "copying");
}

void DeviceWeights::randomize(cudaStream_t stream, uint64_t seed, float norm_deviation) {
  constexpr float kDeviation = 0.02f;
  uint64_t next = seed * 1000003;
  const auto make = [&](MatrixKind kind, int index) {
    const auto [rows, columns] = source_size(kind);
    for (DeviceBuffer<uint16_t>& plain : plain_) {
      if (plain.size() < size_t(rows) * columns)
        plain = DeviceBuffer<uint16_t>(size_t(rows) * columns);
      fill_normal(stream, plain.data(), size_t(rows) * columns, ++next, kDeviation);
    }
    const bool pairs = kind == MatrixKind::gate_up || kind == MatrixKind::expert_gate_up ||
                       kind == MatrixKind::shared_gate_up;
    place(stream, kind, index, plain_[0].data(), pairs ? plain_[1].data() : nullptr);
  };
  make(MatrixKind::embed, 0);
  make(MatrixKind::head, 0);
  for (int layer = 0; layer < shape.layers; ++layer) {
    make(MatrixKind::q, layer);
    make(MatrixKind::out, layer);
    if (shape.latent) {
      make(MatrixKind::kv_a, layer);
      if (shape.latent.q_rank > 0) make(MatrixKind::q_a, layer);
      for (int h = layer * shape.heads; h < (layer + 1) * shape.heads; ++h) {
        make(MatrixKind::absorb, h);
        make(MatrixKind::expand, h);
      }
    } else {
      make(MatrixKind::k, layer);
      make(MatrixKind::v, layer);
    }
    const int index = place_of(layer);
    if (!shape.is_moe(layer)) {
      make(MatrixKind::gate_up, index);
      make(MatrixKind::down, index);
      continue;
    }
    make(MatrixKind::router, index);
    if (shape.shared_ffn > 0) {
      make(MatrixKind::shared_gate_up, index);
      make(MatrixKind::shared_down, index);
    }
    for (int e = 0; e < shape.experts; ++e) {
      make(MatrixKind::expert_gate_up, index * shape.experts + e);
      make(MatrixKind::expert_down, index * shape.experts + e);
    }
  }
  for (DeviceBuffer<float>* norm : {&attn_norm_, &mlp_norm_, &final_norm_, &q_norm_, &k_norm_,
                                    &post_attn_norm_, &post_mlp_norm_, &q_a_norm_, &kv_a_norm_}) {
    if (norm->size()) {
      fill_normal(stream, norm->data(), norm->size(), ++next, norm_deviation, 1.0f);
    }
  }
  if (bias_.size()) fill_normal(stream, bias_.data(), bias_.size(), ++next, 0.1f, 0.0f);
  finish_loading(stream);
}

void DeviceWeights::randomize_cache(cudaStream_t stream, uint64_t seed) {
  if (shape.latent) {
    fill_normal(stream, reinterpret_cast<uint16_t*>(kv.data()), kv.size() / 2, seed, 1.0f);
  } else {
    fill_pages(stream, kv_format, shape.head_dim, kv.data(), kv.size() / kv_page_bytes(), seed);
  }
  check(cudaStreamSynchronize(stream), "filling the cache");
}

std::vector<float> DeviceWeights::unpacked(cudaStream_t stream, MatrixKind kind, int layer) const {
  if (kind == MatrixKind::embed) {
    std::vector<float> values;
    for (const uint16_t bits : embed.host()) {
      const uint32_t wide = uint32_t{bits} << 16;
      float value;
      std::memcpy(&value, &wide, 4);
      values.push_back(value);
    }
    return values;
  }
  const Matrices& m = matrices(kind);
  DeviceBuffer<float> all(size_t(m.tiles.blocks) * kBlockRows * m.tiles.chunks *
                          format_info(m.format).columns);
  unpack(stream, m.format, m.at(layer, 0), m.scale_at(layer, 0), m.tiles.blocks, m.tiles.chunks,
         all.data());
  check(cudaStreamSynchronize(stream), "unpacking");
  return all.host();
}

std::vector<float> DeviceWeights::host_vector(VectorKind kind, int layer) const {
  const auto [data, size] = vector_at(kind, layer);
  std::vector<float> values(size);
  check(cudaMemcpy(values.data(), data, size * 4, cudaMemcpyDeviceToHost), "copying");
  return values;
}

std::vector<float> DeviceWeights::cached(int layer, int page) const {
  if (shape.latent) throw Error("pages of latents are not unpacked");
  const int d = shape.head_dim, each = kv_page_bytes();
  std::vector<uint8_t> raw(size_t(each) * shape.kv_heads);
  check(
      cudaMemcpy(raw.data(), kv_of(layer) + raw.size() * page, raw.size(), cudaMemcpyDeviceToHost),
      "copying");
  std::vector<float> values;
  const auto element = [&](const uint8_t* from, bool key, int token, int i) {
    if (!kv_bytes(kv_format)) {
      uint16_t bits;
      std::memcpy(&bits, from + 2 * (key ? key_at(token, i, d) : value_at(token, i, d)), 2);
      return kv_format == KvFormat::f16 ? __half2float(__half(__half_raw{bits}))
                                        : __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits}));
    }
    const uint8_t byte = from[key ? key_byte(token, i) : value_byte(token, i, d)];
    float scale;
    std::memcpy(&scale, from + (key ? key_scale_byte(token, d) : value_scale_byte(token, d)), 4);
    if (kv_format == KvFormat::int8) return scale * static_cast<int8_t>(byte);
    return scale * __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)));
  };
  for (int side = 0; side < 2 * shape.kv_heads; ++side) {
    for (int token = 0; token < kPageTokens; ++token) {
      for (int i = 0; i < d; ++i) {
        values.push_back(element(raw.data() + size_t(each) * (side / 2), side % 2 == 0, token, i));
      }
    }
  }
  return values;
}

double DeviceWeights::bytes() const {
  double sum = 0;
  for (const Matrices* m : {&qkv, &out, &gate_up, &down, &router, &expert_gate_up, &expert_down,
                            &shared_gate_up, &shared_down, &q_b, &absorb, &expand, &head}) {
    sum += m->bytes();
  }
  return sum;
}

std::pair<float*, size_t> DeviceWeights::vector_at(VectorKind kind, int layer) const {
  const auto at = [&](const DeviceBuffer<float>& of, int size) -> std::pair<float*, size_t> {
    if (of.size() == 0) return {nullptr, 0};
    return {of.data() + size_t(layer) * size, size_t(size)};
  };
  switch (kind) {
    case VectorKind::attn_norm:
      return at(attn_norm_, shape.hidden);
    case VectorKind::post_attn_norm:
      return at(post_attn_norm_, shape.hidden);
    case VectorKind::mlp_norm:
      return at(mlp_norm_, shape.hidden);
    case VectorKind::post_mlp_norm:
      return at(post_mlp_norm_, shape.hidden);
    case VectorKind::final_norm:
      return at(final_norm_, shape.hidden);
    case VectorKind::q_norm:
      return at(q_norm_, shape.head_dim);
    case VectorKind::k_norm:
      return at(k_norm_, shape.head_dim);
    case VectorKind::qkv_bias:
      return at(bias_, qkv_rows());
    case VectorKind::out_bias:
      return at(out_bias_, shape.hidden);
    case VectorKind::sinks:
      return at(sinks_, shape.heads);
    case VectorKind::router_bias:
      return at(router_bias_, router_rows());
    case VectorKind::expert_gate_up_bias:
      return at(expert_gate_up_bias_, shape.experts * 2 * shape.expert_ffn);
    case VectorKind::expert_down_bias:
      return at(expert_down_bias_, shape.experts * shape.hidden);
    case VectorKind::router_correction:
      return at(router_correction_, shape.experts);
    case VectorKind::q_a_norm:
      return at(q_a_norm_, shape.latent.q_rank);
    case VectorKind::kv_a_norm:
      return at(kv_a_norm_, shape.latent.kv_rank);
  }
  return {};
}

std::pair<int, int> DeviceWeights::source_size(MatrixKind kind) const {
  const int kv_columns = shape.kv_heads * shape.head_dim;
  const ModelShape::Latent& latent = shape.latent;
  switch (kind) {
    case MatrixKind::q:
      if (!latent) return {q_columns(), shape.hidden};
      return {shape.heads * latent.q_head(), latent.q_rank > 0 ? latent.q_rank : shape.hidden};
    case MatrixKind::q_a:
      return {latent.q_rank, shape.hidden};
    case MatrixKind::kv_a:
      return {latent.kv_rank + latent.rope, shape.hidden};
    case MatrixKind::absorb:
      return {latent.kv_rank, latent.nope};
    case MatrixKind::expand:
      return {latent.value, latent.kv_rank};
    case MatrixKind::k:
    case MatrixKind::v:
      return {kv_columns, shape.hidden};
    case MatrixKind::out:
      return {shape.hidden, out_columns()};
    case MatrixKind::gate_up:
      return {shape.ffn, shape.hidden};
    case MatrixKind::down:
      return {shape.hidden, shape.ffn};
    case MatrixKind::router:
      return {shape.experts, shape.hidden};
    case MatrixKind::expert_gate_up:
      return {shape.expert_ffn, shape.hidden};
    case MatrixKind::expert_down:
      return {shape.hidden, shape.expert_ffn};
    case MatrixKind::shared_gate_up:
      return {shape.shared_ffn, shape.hidden};
    case MatrixKind::shared_down:
      return {shape.hidden, shape.shared_ffn};
    case MatrixKind::head:
      return {shape.head_columns(), shape.hidden};
    case MatrixKind::embed:
      break;
  }
  return {shape.embedded_tokens(), shape.hidden};
}

const Matrices& DeviceWeights::matrices(MatrixKind kind) const {
  switch (kind) {
    case MatrixKind::out:
      return out;
    case MatrixKind::gate_up:
      return gate_up;
    case MatrixKind::down:
      return down;
    case MatrixKind::router:
      return router;
    case MatrixKind::expert_gate_up:
      return expert_gate_up;
    case MatrixKind::expert_down:
      return expert_down;
    case MatrixKind::shared_gate_up:
      return shared_gate_up;
    case MatrixKind::shared_down:
      return shared_down;
    case MatrixKind::q:
      return shape.latent.q_rank > 0 ? q_b : qkv;
    case MatrixKind::absorb:
      return absorb;
    case MatrixKind::expand:
      return expand;
    case MatrixKind::head:
      return head;
    default:
      return qkv;
  }
}

int DeviceWeights::first_row(MatrixKind kind) const {
  switch (kind) {
    case MatrixKind::k:
      return q_columns();
    case MatrixKind::v:
      return q_columns() + shape.kv_heads * shape.head_dim;
    case MatrixKind::kv_a:
      return kv_a_row();
    default:
      return 0;
  }
}

void DeviceWeights::place(cudaStream_t stream, MatrixKind kind, int index, const uint16_t* first,
                          const uint16_t* second) {
  const auto [rows, columns] = source_size(kind);
  if (kind == MatrixKind::embed) {
    check(cudaMemcpyAsync(embed.data(), first, embed.size() * 2, cudaMemcpyDeviceToDevice, stream),
          "copying");
    return;
  }
  const int block = first_row(kind) / kBlockRows;
  const Matrices& m = matrices(kind);
  pack(stream, m.format, first, second, rows, columns, m.at(index, block), m.scale_at(index, block),
       m.tiles.chunks);
  check(cudaGetLastError(), "packing weights");
}

}  // namespace ridge::cuda
