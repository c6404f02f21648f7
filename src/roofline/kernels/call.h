// Any kernel a calibrated stack can time, and how such kernels are sorted for scores and bands.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "roofline/kernels/attention.h"
#include "roofline/kernels/collective.h"
#include "roofline/kernels/gemm.h"
#include "roofline/kernels/mla.h"
#include "roofline/kernels/moe.h"

namespace ridge {

// Named as the measured tables are.
enum class KernelKind : uint8_t {
  gemm,
  context_attention,
  generation_attention,
  context_mla,
  generation_mla,
  moe,
  nccl,
  custom_allreduce,
  kCount
};
inline constexpr int kFamilyCount = static_cast<int>(KernelKind::kCount);
std::string_view family_name(KernelKind family);
KernelKind family_from_name(std::string_view name);  // throws Error

using KernelCall = std::variant<GemmCall, AttentionCall, MoeCall, CollectiveCall>;

// Sizes that behave alike; errors and bands are kept per stratum.
inline constexpr int kMostStrata = 9;
const std::vector<std::string>& stratum_names(KernelKind family);
int stratum_of(KernelKind family, const KernelCall& call);

// What no software can beat: each operation and each byte once at the datasheet's rates, from
// cost/. Measured kernels may still be faster where their data was left in a cache.
double roof_seconds(KernelKind family, const KernelCall& call, const GpuTraits& gpu);

}  // namespace ridge
