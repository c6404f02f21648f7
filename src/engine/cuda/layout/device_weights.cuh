// A model's weights and KV cache in device memory, in the layouts that the kernels read
// (tiles.cuh).
#pragma once

#include <utility>
#include <vector>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/layout/latent_page.h"
#include "engine/cuda/layout/matrix_upload.cuh"
#include "engine/cuda/layout/model_shape.h"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// Contiguous matrices of one shape: one per layer, or one per layer and expert.
struct Matrices {
  Matrices() = default;
  Matrices(WeightFormat weight_format, int count, int row_count, int columns);
  uint8_t* at(int index, int block) const;
  float* scale_at(int index, int block) const;  // null: none
  double bytes() const { return double(data.size()) + 4.0 * double(scales.size()); }

  WeightFormat format = WeightFormat::bf16;
  int rows = 0;
  Tiles tiles;
  DeviceBuffer<uint8_t> data;
  DeviceBuffer<float> scales;
};

class DeviceWeights {
 public:
  DeviceWeights(const ModelShape& shape, WeightFormat format, KvFormat kv_format, int cache_pages);

  void load(cudaStream_t stream, MatrixKind kind, int layer, const FillRows& first,
            const FillRows& second, int expert);
  void load(cudaStream_t stream, VectorKind kind, int layer, const std::vector<float>& values);
  void finish_loading(cudaStream_t stream);  // waits; releases what only loading needs
  void randomize(cudaStream_t stream, uint64_t seed, float norm_deviation);
  void randomize_cache(cudaStream_t stream, uint64_t seed);
  std::vector<float> unpacked(cudaStream_t stream, MatrixKind kind, int layer) const;
  std::vector<float> host_vector(VectorKind kind, int layer) const;
  std::vector<float> cached(int layer, int page) const;
  double bytes() const;  // of all matrices, which a step of many tokens reads

  // Index of a layer among the dense layers, or among the MoE layers.
  int place_of(int layer) const { return place_[size_t(layer)]; }
  int router_rows() const { return (shape.experts + kBlockRows - 1) / kBlockRows * kBlockRows; }
  int qkv_rows() const {
    if (shape.latent) return kv_a_row() + shape.latent.kv_rank + shape.latent.rope;
    return (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  }
  // Latent attention: where W_kva begins in qkv.
  int kv_a_row() const {
    const int rows =
        shape.latent.q_rank > 0 ? shape.latent.q_rank : shape.heads * shape.latent.q_head();
    return (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
  }
  int out_columns() const { return shape.latent ? shape.heads * shape.latent.value : q_columns(); }
  int q_columns() const { return shape.heads * shape.head_dim; }
  uint8_t* kv_of(int layer) const {
    return kv.data() + size_t(layer) * cache_pages * shape.kv_heads * kv_page_bytes();
  }
  int kv_page_bytes() const {
    return shape.latent ? kLatentPageBytes : page_bytes(kv_format, shape.head_dim);
  }
  // The vector of a layer; null where the model has none.
  float* vector(VectorKind kind, int layer) const { return vector_at(kind, layer).first; }
  const float* frequency_of(int layer) const {
    return ropes.data() + size_t(rope_of(layer)) * (shape.head_dim / 2);
  }
  int rope_of(int layer) const { return shape.rope.empty() ? 0 : shape.rope[size_t(layer)]; }

  ModelShape shape;
  WeightFormat format;  // of the experts; of every other matrix dense_format()
  KvFormat kv_format;
  int cache_pages;
  Matrices qkv, out, gate_up, down, head;
  Matrices router, expert_gate_up, expert_down;  // the router is always bf16
  Matrices shared_gate_up, shared_down;
  // Latent attention: qkv holds W_q or W_qa, then W_kva.
  Matrices q_b, absorb, expand;  // absorb, expand: [layer][head]
  DeviceBuffer<uint16_t> embed;
  DeviceBuffer<uint8_t> kv;   // [layer][page][kv head][page_bytes]
  DeviceBuffer<float> ropes;  // [rope][head_dim / 2]

 private:
  std::pair<float*, size_t> vector_at(VectorKind kind, int layer) const;
  std::pair<int, int> source_size(MatrixKind kind) const;
  int first_row(MatrixKind kind) const;  // in the matrix that it is a part of
  void make_latents();
  const Matrices& matrices(MatrixKind kind) const;
  void place(cudaStream_t stream, MatrixKind kind, int index, const uint16_t* first,
             const uint16_t* second);

  std::vector<int> place_;
  DeviceBuffer<float> attn_norm_, post_attn_norm_, mlp_norm_, post_mlp_norm_, final_norm_;
  DeviceBuffer<float> q_norm_, k_norm_, bias_;
  DeviceBuffer<float> out_bias_, sinks_, router_bias_, expert_gate_up_bias_, expert_down_bias_;
  DeviceBuffer<float> router_correction_, q_a_norm_, kv_a_norm_;
  DeviceBuffer<uint16_t> plain_[2];  // bf16 matrices to pack, while loading
  MatrixUpload upload_;
};

}  // namespace ridge::cuda
