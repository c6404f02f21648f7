#include "roofline/kernel_times.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {
namespace {

KernelTime timed(const KernelMatch& match, KernelKind family, const KernelCall& call,
                 const GpuTraits& gpu) {
  return {kernel_seconds(*match.fit, call, gpu), band_of(match, stratum_of(family, call))};
}

// Weights narrower than the arithmetic are widened on the way.
bool is_weight_only(DType math, double weight_bits) {
  return dtype_bits(math) > 8 && weight_bits < 12;
}

std::optional<KernelTime> gemm_time(const Op& op, const MatchedKernels& k) {
  const auto* shape = std::get_if<MatmulShape>(&op.shape);
  if (!shape || shape->m <= 0) return std::nullopt;
  const bool weight_only = is_weight_only(op.math, shape->weight_bits);
  const KernelMatch& match = weight_only ? k.gemm_weight_only : k.gemm[static_cast<int>(op.math)];
  if (!match.fit) return std::nullopt;
  GemmCall call{*shape};
  // The measured GEMMs write all their outputs in 16 bits: none has an activation fused.
  call.out_bytes = 2;
  call.outputs_kept = 1;
  call.quantize = dtype_bits(op.math) <= 8;
  return timed(match, KernelKind::gemm, call, k.gpu);
}

// How unlike the experts' popularity is in real texts (see Routing). Fitted to endpoints: it gives
// the dip that mixtures show at 16 to 64 sequences.
constexpr double kPopularity = 0.7;
// Up to so many tokens a stack runs the experts' kernels that it has for low latency.
constexpr double kFewTokens = 256;

std::optional<KernelTime> moe_time(const Op& op, const MatchedKernels& k) {
  const auto* block = std::get_if<ExpertBlock>(&op.shape);
  if (!block || block->tokens <= 0) return std::nullopt;
  const bool weight_only = is_weight_only(op.math, block->weight_bits);
  const bool whole = op.math == DType::fp8 && block->ranks <= 1 && k.moe_whole.fit;
  const bool few = op.math == DType::fp4 && block->tokens <= kFewTokens && k.moe_few.fit;
  const KernelMatch& match = weight_only ? k.moe_weight_only
                             : whole     ? k.moe_whole
                             : few       ? k.moe_few
                                         : k.moe[static_cast<int>(op.math)];
  if (!match.fit) return std::nullopt;
  MoeCall call{*block};
  const Routing routing{block->experts, block->top_k, kPopularity};
  call.load = routed_load(routing, block->tokens, block->ranks);
  KernelTime time = timed(match, KernelKind::moe, call, k.gpu);
  time.seconds *= op.block_share;
  return time;
}

std::optional<KernelTime> attention_time(const Op& op, const MatchedKernels& k) {
  const auto* batched = std::get_if<BatchedAttention>(&op.shape);
  if (!batched) return std::nullopt;  // the sparse indexer
  const AttentionSpan& span = batched->span;
  const bool prefill = op.kind == OpKind::attention_prefill;
  const bool narrow = batched->shape.kv_bytes < 1.5;
  AttentionCall call{batched->shape};
  call.batch = span.count;
  call.length = prefill ? span.fresh : span.past + span.fresh;
  call.past = prefill ? span.past : 0;
  call.resident = false;  // other layers' caches pass through in between
  KernelKind family = prefill ? KernelKind::context_attention : KernelKind::generation_attention;
  const KernelMatch* match =
      prefill ? (narrow ? &k.prefill_narrow : &k.prefill) : (narrow ? &k.decode_narrow : &k.decode);
  if (batched->shape.kv_rank > 0) {
    family = prefill ? KernelKind::context_mla : KernelKind::generation_mla;
    match = prefill ? &k.mla_prefill : (narrow ? &k.mla_decode_narrow : &k.mla_decode);
    call = prefill ? mla_prefill_call(call) : mla_decode_call(call);
  }
  if (!match->fit) return std::nullopt;
  KernelTime time = timed(*match, family, call, k.gpu);
  if (!prefill && span.fresh > 1) {
    // Several queries share one pass over the cache; only the arithmetic grows.
    time.seconds = std::max(time.seconds, op.work.flops / k.gpu.peak_of(DType::bf16) / 0.5);
  }
  return time;
}

std::optional<KernelTime> collective_time(const Op& op, const MatchedKernels& k) {
  const Work& w = op.work;
  if (w.collective == Collective::send || !k.gpu.p2p || w.ranks * w.stride > k.gpu.link_devices) {
    return std::nullopt;
  }
  const bool own = w.collective == Collective::all_reduce && k.all_reduce.fit;
  const KernelMatch& match = own ? k.all_reduce : k.nccl[static_cast<int>(w.collective)];
  if (!match.fit) return std::nullopt;
  const CollectiveCall call{w.collective, w.message_bytes, double(w.ranks)};
  return timed(match, own ? KernelKind::custom_allreduce : KernelKind::nccl, call, k.gpu);
}

// The tables' names for the type that GEMMs run in.
std::string_view table_dtype(DType math) {
  switch (math) {
    case DType::fp8:
      return "fp8";
    case DType::int8:
      return "sq";
    case DType::fp4:
      return "nvfp4";
    default:
      return "bfloat16";
  }
}

// The tables time narrow GEMMs with dynamic scales: kernels of their own quantize the activations.
// A checkpoint with static scales quantizes in the epilogue before, so that a GEMM starts as
// quickly as one of 16 bits.
void fuse_quantization(MatchedKernels& k) {
  const KernelMatch& wide = k.gemm[static_cast<int>(DType::bf16)];
  for (const DType dtype : {DType::fp8, DType::fp4}) {
    KernelMatch& match = k.gemm[static_cast<int>(dtype)];
    if (!match.fit || !wide.fit) continue;
    auto fused = std::make_shared<KernelFit>(*match.fit);
    auto& params = std::get<GemmParams>(fused->params);
    params.t0 = std::min(params.t0, std::get<GemmParams>(wide.fit->params).t0);
    params.quant_start = params.quant_row = 0;
    params.quant = 1e6;
    match.fit = fused.get();
    k.changed.push_back(std::move(fused));
  }
}

}  // namespace

std::optional<MatchedKernels> match_kernels(const Machine& machine, const Stack& stack) {
  const KernelFits& all = builtin_fits();
  const bool known = std::any_of(all.begin(), all.end(),
                                 [&](const KernelFit& fit) { return fit.stack == stack.name; });
  if (!known || machine.kind != MachineKind::gpu) return std::nullopt;
  MatchedKernels k;
  try {
    k.gpu = gpu_traits(machine);
  } catch (const Error&) {
    return std::nullopt;  // too little is known of the GPU to move fits to it
  }
  const auto find = [&](KernelKind family, std::string_view dtype, std::string_view kernel = {}) {
    KernelKey key;
    key.family = family;
    key.stack = stack.name;
    key.dtype = dtype;
    key.kernel = kernel;
    key.arch = k.gpu.arch;
    return find_fit(all, key);
  };
  for (int i = 0; i < kDTypeCount; ++i) {
    const std::string_view dtype = table_dtype(static_cast<DType>(i));
    k.gemm[i] = find(KernelKind::gemm, dtype);
    k.moe[i] = find(KernelKind::moe, dtype == "fp8" ? "fp8_block" : dtype);
  }
  k.gemm_weight_only = find(KernelKind::gemm, "int4_wo");
  // Blackwell multiplies 4-bit weights with 8-bit activations.
  const bool blackwell = k.gpu.arch == Arch::blackwell;
  k.moe_weight_only = find(KernelKind::moe, blackwell ? "w4a8_mxfp4_mxfp8" : "w4a16_mxfp4");
  k.prefill = find(KernelKind::context_attention, "bfloat16/bfloat16");
  k.prefill_narrow = find(KernelKind::context_attention, "bfloat16/fp8");
  k.decode = find(KernelKind::generation_attention, "bfloat16/bfloat16");
  k.decode_narrow = find(KernelKind::generation_attention, "bfloat16/fp8");
  k.mla_prefill = find(KernelKind::context_mla, "bfloat16/bfloat16");
  k.mla_decode = find(KernelKind::generation_mla, "bfloat16/bfloat16");
  k.mla_decode_narrow = find(KernelKind::generation_mla, "bfloat16/fp8");
  k.all_reduce = find(KernelKind::custom_allreduce, "any");
  constexpr std::string_view kNames[] = {
      "", "all_reduce", "all_gather", "reduce_scatter", "alltoall", ""};
  for (int i = 1; i < 5; ++i) k.nccl[i] = find(KernelKind::nccl, "any", kNames[i]);
  if (stack.fused_quantization) fuse_quantization(k);
  if (blackwell && !stack.whole_experts_kernel.empty()) {
    k.moe_whole = find(KernelKind::moe, "fp8_block", stack.whole_experts_kernel);
  }
  if (blackwell && !stack.few_tokens_experts_kernel.empty()) {
    k.moe_few = find(KernelKind::moe, "nvfp4", stack.few_tokens_experts_kernel);
  }
  return k;
}

std::optional<KernelTime> kernel_time(const Op& op, const MatchedKernels& kernels) {
  switch (op.kind) {
    case OpKind::matmul:
      return gemm_time(op, kernels);
    case OpKind::expert_matmul:
      return moe_time(op, kernels);
    case OpKind::attention_prefill:
    case OpKind::attention_decode:
      return attention_time(op, kernels);
    case OpKind::collective:
      return collective_time(op, kernels);
    default:
      break;
  }
  // Routing's time is part of the fitted expert block.
  if (op.block_share == 0) return KernelTime{0, {1, 1}};
  return std::nullopt;
}

}  // namespace ridge
