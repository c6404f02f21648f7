#include "roofline/kernel_fits.h"

#include <algorithm>
#include <cmath>

#include "base/embedded.h"
#include "base/json.h"

namespace ridge {
namespace {

// How unlike two kernel generations are for libraries written for the first, in the order of Arch.
// sm_120 (Blackwell RTX) has Ada's instructions and memory, not the data-centre tensor cores.
// "Other" as a fit's architecture is a fit over all generations.
constexpr double kArchDistance[kArchCount][kArchCount] = {
    // ampere, ada, hopper, blackwell, blackwell-rtx, other
    {0, 2, 2.2, 3, 2.5, 1.5},     // ampere
    {2, 0, 3, 4, 1, 1.5},         // ada
    {2.2, 3, 0, 2, 3.5, 1.5},     // hopper
    {3, 4, 2, 0, 3, 1.5},         // blackwell
    {2.5, 1, 3.5, 3, 0, 1.5},     // blackwell-rtx
    {2, 2.5, 2.2, 2.4, 2.3, 1.5}  // other
};

// Words in a kernel's name that say which library it comes from.
constexpr std::string_view kLibraries[] = {
    "triton", "fa2",      "fa3",      "fa4",   "flashinfer",  "trtllm", "cutlass",
    "marlin", "deepgemm", "nongated", "eager", "min_latency", "decode", "cutedsl"};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

double kernel_distance(std::string_view wanted, const KernelFit& fit) {
  if (wanted.empty()) {  // the ordinary kernel of the stack: launched from a graph, gated experts
    return has(fit.kernel, "eager") || has(fit.kernel, "nongated") ? 0.5 : 0;
  }
  if (wanted == fit.kernel || fit.kernel == "pooled") return 0;
  if (fit.family == KernelKind::nccl) return 8;  // another collective
  double distance = 0.1;
  for (std::string_view word : kLibraries)
    if (has(wanted, word) != has(fit.kernel, word)) distance += 0.3;
  return distance;
}

// Formats by what the kernel does: 0 16-bit, 1 8-bit both sides, 2 weights only, 3 4-bit both.
int format_class(std::string_view dtype) {
  if (dtype == "fp8" || dtype == "fp8_block" || dtype == "sq" || dtype == "int8") return 1;
  if (dtype == "int8_wo" || dtype == "int4_wo" || dtype == "w4a16_mxfp4") return 2;
  if (dtype == "nvfp4" || dtype == "w4a8_mxfp4_mxfp8") return 3;
  return 0;
}
double format_distance(std::string_view a, std::string_view b) {
  if (a == b || a == "any" || b == "any") return 0;
  const size_t left = a.find('/'), right = b.find('/');
  if (left != std::string_view::npos && right != std::string_view::npos) {
    return 1.5 * format_distance(a.substr(0, left), b.substr(0, right)) / 4 +
           format_distance(a.substr(left + 1), b.substr(right + 1)) / 4;
  }
  const int first = format_class(a), second = format_class(b);
  if (first == second) return first == 0 ? 0 : 1.2;
  // Narrow formats are nearer to each other (they quantize activations) than to 16 bits.
  return first * second == 3 ? 2.5 : 4;
}

}  // namespace

double kernel_seconds(const KernelFit& fit, const KernelCall& call, const GpuTraits& gpu) {
  switch (fit.params.index()) {
    case 0:
      return gemm_seconds(std::get<GemmCall>(call), gpu, std::get<GemmParams>(fit.params));
    case 1:
      return prefill_seconds(std::get<AttentionCall>(call), gpu,
                             std::get<PrefillParams>(fit.params));
    case 2:
      return decode_seconds(std::get<AttentionCall>(call), gpu, std::get<DecodeParams>(fit.params));
    case 3:
      return moe_seconds(std::get<MoeCall>(call), gpu, std::get<MoeParams>(fit.params));
    default:
      return collective_kernel_seconds(std::get<CollectiveCall>(call), gpu,
                                       std::get<CollectiveParams>(fit.params));
  }
}

KernelMatch find_fit(const KernelFits& fits, const KernelKey& key) {
  KernelMatch best;
  for (const KernelFit& fit : fits) {
    if (fit.family != key.family) continue;
    double distance = format_distance(key.dtype, fit.dtype);
    distance += kArchDistance[static_cast<int>(key.arch)][static_cast<int>(fit.arch)];
    distance += kernel_distance(key.kernel, fit);
    // NCCL is the same library in every stack.
    if (key.family != KernelKind::nccl && key.stack != fit.stack) distance += 0.8;
    if (key.head_dim > 0 && !fit.head_dims.empty() &&
        std::find(fit.head_dims.begin(), fit.head_dims.end(), key.head_dim) == fit.head_dims.end())
      distance += 0.6;
    const bool nearer = !best.fit || distance < best.distance - 1e-9;
    const bool tie = best.fit && std::fabs(distance - best.distance) <= 1e-9;
    if (nearer || (tie && fit.rows > best.fit->rows)) best = {&fit, distance};
  }
  return best;
}

Band band_of(const KernelMatch& match, int stratum) {
  if (!match.fit || match.fit->bands.empty()) return {0.5, 2};
  const auto index = static_cast<size_t>(stratum);
  Band band = match.fit->bands[std::min(index, match.fit->bands.size() - 1)];
  // Leave-one-GPU-out errors (docs/accuracy.md): an unseen GPU of a fitted architecture has the
  // same band, a step to the next architecture about doubles the spread.
  const double wider = 1 + 0.12 * match.distance;
  band.low /= wider;
  band.high *= wider;
  return band;
}

const KernelFits& builtin_fits() {
  static const KernelFits all = [] {
    KernelFits out;
    for (const EmbeddedFile* file = kEmbeddedFiles; file->path; ++file) {
      const std::string_view path = file->path;
      if (path.starts_with("stacks/")) read_fits(parse_json(file->text, path), path, out);
    }
    return out;
  }();
  return all;
}

}  // namespace ridge
