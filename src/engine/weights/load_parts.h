// Lists the tensors of a model by role, each with its slot in Weights, its shape and its name in
// files. Loading, random weights and conversion all iterate over this list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/weights/weights.h"

namespace ridge {

enum class TensorRole : uint8_t {
  embed,
  head,
  final_norm,
  attn_norm,
  post_attn_norm,
  mlp_norm,
  post_mlp_norm,
  q_norm,
  k_norm,
  q,
  k,
  v,
  out,
  q_bias,
  k_bias,
  v_bias,
  gate,
  up,
  down,
  router,
  expert_gate,
  expert_up,
  expert_down,
  kCount
};

// Exactly one of `matrix` and `vector` is set; a vector has `rows` numbers and no columns.
template <typename M, typename V>
struct BasicSlot {
  TensorRole role;
  int layer, expert;  // -1: none
  int64_t rows, columns;
  M* matrix;
  V* vector;
};
using Slot = BasicSlot<Matrix, Vector>;
using ConstSlot = BasicSlot<const Matrix, const Vector>;

// Sizes weights.layers and lists the tensors that the architecture needs: embedding first, then
// layer by layer, final norm and head last. A tied head has no slot.
std::vector<Slot> make_slots(Weights& weights);
std::vector<ConstSlot> slots_of(const Weights& weights);  // after make_slots

bool is_norm(TensorRole role);
bool is_expert(TensorRole role);

// The storage of a matrix when `wanted` is requested: f32 for routers. Where `columns` do not fill
// whole blocks, llama.cpp's fallback (q4_k: q5_0, q5_k: q5_1, q6_k: q8_0), or bf16.
Storage storage_for(TensorRole role, int64_t columns, Storage wanted);

// "blk.3.attn_q.weight" or "model.layers.3.self_attn.q_proj.weight". GGUF stores all experts of a
// layer in one tensor, so the name is the same for every expert.
std::string tensor_name(FileKind kind, const Architecture& architecture, TensorRole role, int layer,
                        int expert);

// In GGUFs of the llama family the rows of a head are interleaved: row 2 j + s of the file is row s
// dim / 2 + j in Weights (s: 0, 1). The other families keep Hugging Face's order.
bool gguf_interleaves(const Architecture& architecture, TensorRole role);
inline int64_t gguf_row(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + 2 * (within % half) + within / half;
}

// Sets the formats of the model's matrices, and their bytes, from the loaded weights.
void set_model_formats(Weights& weights);
// Resolves a tied head and sums up all bytes.
void finish_weights(Weights& weights);

}  // namespace ridge
