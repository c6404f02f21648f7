// Timing an Op by a stack's fitted kernels (kernel_fits.h). The fits are matched once per machine,
// so that timing an operator is one kernel formula (roofline/kernels), applied to the Op's shape.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "cost/op.h"
#include "roofline/kernel_fits.h"
#include "roofline/stack.h"

namespace ridge {

struct KernelTime {
  double seconds = 0;
  Band band;
};

struct MatchedKernels {
  GpuTraits gpu;
  // By the DType that GEMMs run in; the narrow ones include the quantization of activations.
  std::array<KernelMatch, kDTypeCount> gemm, moe;
  KernelMatch gemm_weight_only;  // 4-bit weights, 16-bit arithmetic
  KernelMatch moe_weight_only;
  KernelMatch moe_whole;  // block-scaled fp8 experts that are not spread over ranks
  KernelMatch moe_few;    // fp4 experts of few tokens
  KernelMatch prefill, prefill_narrow, decode, decode_narrow;  // narrow: 8-bit cache
  KernelMatch mla_prefill, mla_decode, mla_decode_narrow;
  KernelMatch all_reduce;                                 // the stack's own kernel
  std::array<KernelMatch, 6> nccl;                        // by Collective
  std::vector<std::shared_ptr<const KernelFit>> changed;  // fits that were changed for the stack
};

// nullopt where the stack has no fits, or the machine is no GPU they could be moved to.
std::optional<MatchedKernels> match_kernels(const Machine& machine, const Stack& stack);

// nullopt for operators that no fit covers: elementwise, scans, sampling.
std::optional<KernelTime> kernel_time(const Op& op, const MatchedKernels& kernels);

}  // namespace ridge
