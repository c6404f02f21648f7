#include "roofline/kernels/call.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "cost/collective.h"

namespace ridge {
namespace {

constexpr std::array<std::string_view, kFamilyCount> kNames = {
    "gemm", "context_attention", "generation_attention", "context_mla", "generation_mla", "moe",
    "nccl", "custom_allreduce"};

int range(double value, double first, double second) {
  return value <= first ? 0 : value <= second ? 1 : 2;
}

double roof_of(const Work& work, DType math, const GpuTraits& gpu) {
  return std::max(work.flops / gpu.peak_of(math), work.device_bytes() / gpu.bandwidth);
}

double gemm_roof(const GemmCall& call, const GpuTraits& gpu) {
  return roof_of(matmul_work(call), call.math, gpu);
}

double attention_roof(const AttentionCall& call, bool decode, const GpuTraits& gpu) {
  AttentionSpan span{call.batch, call.length, call.past};
  if (decode) span = {call.batch, 1, call.length - 1};
  const Work work =
      call.shared_kv ? mla_absorbed_work(call, span) : flash_attention_work(call, span);
  return roof_of(work, call.math, gpu);
}

double moe_roof(const MoeCall& call, const GpuTraits& gpu) {
  const auto roof = [&](const MatmulShape& gemm) {
    return roof_of(grouped_matmul_work(gemm, call.load.active), call.math, gpu);
  };
  return roof(expert_up(call, call.load.pairs)) + roof(expert_down(call, call.load.pairs));
}

}  // namespace

std::string_view family_name(KernelKind family) { return kNames[static_cast<size_t>(family)]; }

KernelKind family_from_name(std::string_view name) {
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) throw Error("unknown kernel family '{}'", name);
  return static_cast<KernelKind>(at - kNames.begin());
}

const std::vector<std::string>& stratum_names(KernelKind family) {
  static const std::vector<std::string> rows = {"m<=64", "64<m<2048", "m>=2048"};
  static const std::vector<std::string> prompt = {"isl<=512", "512<isl<=4k", "isl>4k"};
  static const std::vector<std::string> decode = {"b<=4 ctx<=1k",  "b<=4 ctx<=8k",  "b<=4 ctx>8k",
                                                  "b<=32 ctx<=1k", "b<=32 ctx<=8k", "b<=32 ctx>8k",
                                                  "b>32 ctx<=1k",  "b>32 ctx<=8k",  "b>32 ctx>8k"};
  static const std::vector<std::string> experts = {"T<=64 balanced",      "64<T<2048 balanced",
                                                   "T>=2048 balanced",    "T<=64 power-law",
                                                   "64<T<2048 power-law", "T>=2048 power-law"};
  static const std::vector<std::string> message = {"<=64KB", "64KB-4MB", ">4MB"};
  switch (family) {
    case KernelKind::gemm:
      return rows;
    case KernelKind::context_attention:
    case KernelKind::context_mla:
      return prompt;
    case KernelKind::generation_attention:
    case KernelKind::generation_mla:
      return decode;
    case KernelKind::moe:
      return experts;
    default:
      return message;
  }
}

int stratum_of(KernelKind family, const KernelCall& call) {
  switch (family) {
    case KernelKind::gemm:
      return range(std::get<GemmCall>(call).m, 64, 2047);
    case KernelKind::context_attention:
    case KernelKind::context_mla:
      return range(std::get<AttentionCall>(call).length, 512, 4096);
    case KernelKind::generation_attention:
    case KernelKind::generation_mla: {
      const AttentionCall& a = std::get<AttentionCall>(call);
      return 3 * range(a.batch, 4, 32) + range(a.length, 1024, 8192);
    }
    case KernelKind::moe: {
      const MoeCall& m = std::get<MoeCall>(call);
      return range(m.tokens, 64, 2047) + (m.skewed ? 3 : 0);
    }
    default:
      return range(std::get<CollectiveCall>(call).bytes, 65536, 4194304);
  }
}

double roof_seconds(KernelKind family, const KernelCall& call, const GpuTraits& gpu) {
  switch (family) {
    case KernelKind::gemm:
      return gemm_roof(std::get<GemmCall>(call), gpu);
    case KernelKind::context_attention:
    case KernelKind::context_mla:
      return attention_roof(std::get<AttentionCall>(call), false, gpu);
    case KernelKind::generation_attention:
    case KernelKind::generation_mla:
      return attention_roof(std::get<AttentionCall>(call), true, gpu);
    case KernelKind::moe:
      return moe_roof(std::get<MoeCall>(call), gpu);
    default: {
      const CollectiveCall& c = std::get<CollectiveCall>(call);
      return gpu.link > 0
                 ? collective_seconds(c.kind, c.bytes, static_cast<int>(c.ranks), 1 / gpu.link, 0)
                 : 0;
    }
  }
}

}  // namespace ridge
