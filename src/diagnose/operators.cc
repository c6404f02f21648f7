#include "diagnose/operators.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

KernelFamily family_of(const OpEstimate& op) {
  const std::string_view name = op.name;
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (has("all_reduce") || has("all_gather") || has("all_to_all") || has("reduce_scatter") ||
      has("send")) {
    return KernelFamily::collective;
  }
  if (name.starts_with("expert_")) return KernelFamily::experts;
  if (name == "route") return KernelFamily::routing;
  if (has("norm")) return KernelFamily::norm;
  if (has("rope")) return KernelFamily::rope;
  if (has("attention")) return KernelFamily::attention;
  if (has("act") || has("swiglu") || has("gelu")) return KernelFamily::activation;
  if (name == "sample") return KernelFamily::sampling;
  if (name == "embed") return KernelFamily::embedding;
  return op.kind == OpKind::matmul ? KernelFamily::gemm : KernelFamily::other;
}

}  // namespace

double profile_steps(const KernelProfile& profile, const Expected* expected) {
  if (profile.steps > 0) return profile.steps;
  if (!expected) return 0;
  double layers = 0;
  for (const OpEstimate& op : expected->prediction.ops) {
    if (!op.prefill && op.name == "attention") layers = op.count;
  }
  const double launches = profile.families[static_cast<size_t>(KernelFamily::attention)].launches;
  return layers > 0 ? std::round(launches / layers) : 0;
}

std::vector<OperatorTime> operator_times(const KernelProfile& profile, const Expected* expected) {
  std::vector<OperatorTime> rows(kKernelFamilies);
  for (size_t f = 0; f < kKernelFamilies; ++f) {
    rows[f].family = static_cast<KernelFamily>(f);
    rows[f].seconds = profile.families[f].seconds;
    rows[f].launches = profile.families[f].launches;
  }
  const double steps = profile_steps(profile, expected);
  const bool prefill = profile.prefill_tokens > 4 * profile.decode_tokens;
  if (expected && steps > 0) {
    for (const OpEstimate& op : expected->prediction.ops) {
      if (op.prefill != prefill) continue;
      OperatorTime& row = rows[static_cast<size_t>(family_of(op))];
      row.expected_s += steps * op.expected_s;
      row.flops += steps * op.flops;
      row.bytes += steps * op.bytes;
    }
  }
  std::erase_if(rows,
                [](const OperatorTime& row) { return row.seconds == 0 && row.launches == 0; });
  std::stable_sort(rows.begin(), rows.end(), [](const OperatorTime& a, const OperatorTime& b) {
    return a.seconds > b.seconds;
  });
  return rows;
}

}  // namespace ridge
