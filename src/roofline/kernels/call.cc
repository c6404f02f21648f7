#include "roofline/kernels/call.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "cost/attention.h"
#include "cost/collective.h"
#include "cost/matmul.h"

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
  MatmulShape shape;
  shape.m = call.m;
  shape.k = call.k;
  shape.n = call.n;
  shape.weight_bits = call.weight_bits;
  shape.in_bytes = call.in_bytes;
  shape.out_bytes = call.out_bytes;
  shape.math = call.math;
  return roof_of(matmul_work(shape), call.math, gpu);
}

double attention_roof(const AttentionCall& call, bool decode, const GpuTraits& gpu) {
  AttentionShape shape;
  shape.heads = call.heads;
  shape.kv_heads = call.kv_heads;
  shape.head_dim = call.qk_dim;
  shape.v_head_dim = call.v_dim;
  shape.window = call.window;
  shape.kv_bytes = call.kv_bytes;
  AttentionSpan span{call.batch, call.length, 0};
  if (decode) span = {call.batch, 1, call.length - 1};
  if (!call.shared_kv) return roof_of(flash_attention_work(shape, span), call.math, gpu);
  shape.kv_rank = call.v_dim;
  shape.rope_dim = call.qk_dim - call.v_dim;
  return roof_of(mla_absorbed_work(shape, span), call.math, gpu);
}

double moe_roof(const MoeCall& call, const GpuTraits& gpu) {
  MatmulShape up, down;
  up.m = down.m = call.load.pairs;
  up.k = down.n = call.hidden;
  up.n = (call.gated ? 2 : 1) * call.inter;
  up.outputs_kept = call.gated ? 0.5 : 1;
  down.k = call.inter;
  up.weight_bits = down.weight_bits = call.weight_bits;
  up.in_bytes = down.in_bytes = call.in_bytes;
  up.math = down.math = call.math;
  return roof_of(grouped_matmul_work(up, call.load.active), call.math, gpu) +
         roof_of(grouped_matmul_work(down, call.load.active), call.math, gpu);
}

}  // namespace

std::string_view family_name(KernelFamily family) { return kNames[static_cast<size_t>(family)]; }

KernelFamily family_from_name(std::string_view name) {
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) throw Error("unknown kernel family '{}'", name);
  return static_cast<KernelFamily>(at - kNames.begin());
}

const std::vector<std::string>& stratum_names(KernelFamily family) {
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
    case KernelFamily::gemm:
      return rows;
    case KernelFamily::context_attention:
    case KernelFamily::context_mla:
      return prompt;
    case KernelFamily::generation_attention:
    case KernelFamily::generation_mla:
      return decode;
    case KernelFamily::moe:
      return experts;
    default:
      return message;
  }
}

int stratum_of(KernelFamily family, const KernelCall& call) {
  switch (family) {
    case KernelFamily::gemm:
      return range(std::get<GemmCall>(call).m, 64, 2047);
    case KernelFamily::context_attention:
    case KernelFamily::context_mla:
      return range(std::get<AttentionCall>(call).length, 512, 4096);
    case KernelFamily::generation_attention:
    case KernelFamily::generation_mla: {
      const AttentionCall& a = std::get<AttentionCall>(call);
      return 3 * range(a.batch, 4, 32) + range(a.length, 1024, 8192);
    }
    case KernelFamily::moe: {
      const MoeCall& m = std::get<MoeCall>(call);
      return range(m.tokens, 64, 2047) + (m.skewed ? 3 : 0);
    }
    default:
      return range(std::get<CollectiveCall>(call).bytes, 65536, 4194304);
  }
}

double roof_seconds(KernelFamily family, const KernelCall& call, const GpuTraits& gpu) {
  switch (family) {
    case KernelFamily::gemm:
      return gemm_roof(std::get<GemmCall>(call), gpu);
    case KernelFamily::context_attention:
    case KernelFamily::context_mla:
      return attention_roof(std::get<AttentionCall>(call), false, gpu);
    case KernelFamily::generation_attention:
    case KernelFamily::generation_mla:
      return attention_roof(std::get<AttentionCall>(call), true, gpu);
    case KernelFamily::moe:
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
