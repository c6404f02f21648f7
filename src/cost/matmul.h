// GEMMs: m x k times k x n.
#pragma once

#include "cost/cpu_format.h"
#include "cost/work.h"

namespace ridge {

struct MatmulShape {
  double m = 0, k = 0, n = 0;  // tokens, inputs, outputs
  double weight_bits = 16;     // per weight, scales and zero points included
  double in_bytes = 2;         // per input activation
  double out_bytes = 2;        // per output activation
  double outputs_kept = 1;     // share of n that is written (a fused SwiGLU writes half)
  DType math = DType::bf16;    // what the matrix units run in
  CpuFormat format = CpuFormat::other;

  // Every operation and every operand's byte once.
  double flops() const { return 2 * m * k * n; }
  double weight_bytes() const { return k * n * weight_bits / 8; }
  double input_bytes() const { return m * k * in_bytes; }
  double output_bytes() const { return m * n * out_bytes * outputs_kept; }
};

// 2mkn FLOPs; k n weights, m k inputs and m n outputs each through device memory once.
Work matmul_work(const MatmulShape& shape);

// `experts` products that share the m rows between them, e.g. the distinct experts of a batch.
Work grouped_matmul_work(const MatmulShape& shape, double experts);

// The multiple every dimension is padded to: 16 bytes of elements (8 for fp16, 16 for int8 and
// fp8, 32 for fp4), as the tensor cores' operand layout asks; tokens are padded to 8, the
// narrowest side of an MMA.
double dimension_multiple(DType math);
double pad_to(double value, double multiple);

}  // namespace ridge
