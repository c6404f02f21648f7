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

enum class Collective : uint8_t {
  none,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  send,
  broadcast,
  barrier
};

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

}  // namespace ridge
