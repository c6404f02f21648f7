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
  out_bias,
  sinks,
  router_bias,
  expert_gate_bias,
  expert_up_bias,
  expert_down_bias,
  q_a,
  q_a_norm,
  kv_a,
  kv_a_norm,
  kv_b,
  router_correction,
  shared_gate,
  shared_up,
  shared_down,
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
bool is_expert(TensorRole role);       // a matrix
bool is_expert_bias(TensorRole role);  // a vector

// The storage of a matrix when `wanted` is requested: f32 for routers. Where `columns` do not fill
// whole blocks, llama.cpp's fallback (q4_k: q5_0, q5_k: q5_1, q6_k: q8_0), or bf16.
Storage storage_for(TensorRole role, int64_t columns, Storage wanted);

// "blk.3.attn_q.weight" or "model.layers.3.self_attn.q_proj.weight". GGUF stores all experts of a
// layer in one tensor, so the name is the same for every expert.
std::string tensor_name(FileKind kind, const Architecture& architecture, TensorRole role, int layer,
                        int expert);

// In GGUFs of the llama family, and in every file of GLM-4, DeepSeek and Llama 4, the rotated rows
// of a head are interleaved: row 2 j + s of the file is row s dims / 2 + j in Weights (s: 0, 1).
// The other families keep the two halves apart.
bool interleaves_rows(FileKind kind, const Architecture& architecture, TensorRole role);
// Latent attention rotates the last rows of a query head and of kv_a, other heads begin with them.
inline int64_t file_row(int64_t row, const Architecture& architecture, TensorRole role) {
  const LatentAttention& latent = architecture.latent;
  const int64_t head = latent && role == TensorRole::q ? latent.q_head() : architecture.head_dim;
  const int64_t dims = architecture.ropes[0].dims();
  const int64_t within = row % head - (latent ? head - dims : 0);
  if (within < 0 || within >= dims) return row;
  return row - within + 2 * (within % (dims / 2)) + within / (dims / 2);
}

// Where files store some matrices in one: q above k above v, gate above up.
struct FusedRows {
  std::string name;             // as tensor_name() gives them; empty: the role has no such form
  int64_t first = 0, rows = 0;  // of the role's first row, and of all
};
FusedRows fused_rows(FileKind kind, const Architecture& architecture, TensorRole role, int layer);

// Sets the formats of the model's matrices, and their bytes, from the loaded weights.
void set_model_formats(Weights& weights);
// Resolves a tied head and sums up all bytes.
void finish_weights(Weights& weights);

}  // namespace ridge
