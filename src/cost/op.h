// One operator of a step: its work, and the shape that the work was computed from.
#pragma once

#include <variant>

#include "cost/attention.h"
#include "cost/matmul.h"
#include "cost/moe.h"
#include "cost/work.h"

namespace ridge {

// Attention over a batch. `span` holds means over the sequences that one kernel serves.
struct BatchedAttention {
  AttentionShape shape;
  AttentionSpan span{0, 0, 0};
};

// Kernel models (roofline/kernels) need more than the sums in Work. Empty: elementwise operators,
// scans, collectives (their message is in Work) and the sparse indexer.
using OpShape = std::variant<std::monostate, MatmulShape, ExpertBlock, BatchedAttention>;

struct Op {
  const char* name = "";  // "qkv", "attention", "down": a static string
  OpKind kind = OpKind::matmul;
  DType math = DType::bf16;  // what the matrix units run in
  Work work;                 // of one execution
  double count = 1;          // executions per step (identical layers)
  OpShape shape{};           // of one execution
  double tokens = 0;         // of the whole step; 0: of no step in particular
  // Fitted kernels time an expert block (routing and both GEMMs) as one: this operator's share of
  // that time. 1: not part of such a block.
  double block_share = 1;

  double intensity() const {
    const double bytes = work.device_bytes();
    return bytes > 0 ? (work.flops + work.vector_flops) / bytes : 0;
  }
};

}  // namespace ridge
