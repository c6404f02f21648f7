// What one operator must do: the only place where FLOPs and bytes are stated.
//
// The predictor times a Work, the engine reports achieved against it, the diagnosis compares
// observations with it. Everything is per device (one rank) and per execution of the operator.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace ridge {

enum class OpKind : uint8_t {
  matmul,             // dense projection
  expert_matmul,      // grouped projection over routed experts
  attention_prefill,  // many new tokens per sequence
  attention_decode,   // one or a few new tokens per sequence
  elementwise,        // norm, rope, activation, residual, cache write, quantization, routing
  scan,               // linear attention and state-space layers
  embed,              // gather of embedding rows
  sample,             // logits to a token
  collective,         // communication between ranks
  kCount
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kCount);
std::string_view op_kind_name(OpKind kind);

enum class Collective : uint8_t { none, all_reduce, all_gather, reduce_scatter, all_to_all, send };

struct Work {
  double flops = 0;         // useful operations, 2 per multiply-add, on the matrix units
  double padded_flops = 0;  // the same after tile padding: what the unit executes
  double vector_flops = 0;  // arithmetic on the vector units (softmax, norms, activations)
  double weight_bytes = 0;  // weights, read once
  double kv_bytes = 0;      // KV cache and recurrent state read and written
  double act_bytes = 0;     // activations read and written
  double chip_bytes = 0;    // cache to compute units, re-reads of tiles included
  double host_bytes = 0;    // weights that live in host memory and cross the host link
  double launches = 1;      // kernels

  Collective collective = Collective::none;
  double message_bytes = 0;  // held by one rank before (all_reduce, send) or after the exchange
  int ranks = 1;
  int stride = 1;  // devices between neighbours of the group: tensor-parallel ranks are adjacent

  // Through device memory, each byte once.
  double device_bytes() const { return weight_bytes + kv_bytes + act_bytes; }
};

// The shape behind a Work, for kernel models that need more than its sums.
struct Dims {
  double m = 0, k = 0, n = 0;  // products: rows, inputs, outputs
                               // experts: tokens, hidden, inner columns of one expert
  double weight_bits = 16, in_bytes = 2;
  double sequences = 0, fresh = 0, past = 0;  // attention: means over the batch
  double heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0, window = 0, kv_bytes = 2;
  double experts = 0, top_k = 0, ranks = 1;
  double block = 1;     // share of its fused block's time (routing and both expert products)
  bool latent = false;  // MLA
  bool gated = true;    // experts with a gate
  bool skewed = false;  // experts with a power-law load
};

struct Op {
  const char* name = "";  // "qkv", "attention", "down": a static string
  OpKind kind = OpKind::matmul;
  DType math = DType::bf16;  // what the matrix units run in
  Work work;                 // of one execution
  double count = 1;          // executions per step (identical layers)
  Dims dims{};               // default, so that tests may write an operator without it
  double tokens = 0;         // of the whole step; 0: of no step in particular

  double intensity() const {
    const double bytes = work.device_bytes();
    return bytes > 0 ? (work.flops + work.vector_flops) / bytes : 0;
  }
};

}  // namespace ridge
