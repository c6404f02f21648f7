// How a step runs: chosen once per step, here.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/decode/decode_router.cuh"
#include "engine/cuda/decode/decode_shared_memory.cuh"
#include "engine/cuda/device/kernel_set.h"
#include "engine/cuda/elementwise/rms_norm.cuh"
#include "engine/cuda/gemm/linear.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/model_shape.h"
#include "engine/cuda/moe/experts.cuh"
#include "engine/cuda/portable/gemm.cuh"

namespace ridge::cuda {

enum class StepPath : uint8_t {
  decode_kernel,  // one persistent kernel for the whole step (decode/decode.cuh)
  fused_layer,    // per layer: attention, then one kernel for all GEMMs up to the next attention,
                  // with the norms folded into their epilogues (gemm/linear.cuh)
  per_operator,   // a kernel per operator
};

inline DecodeVariant decode_variant(const ModelShape& s) {
  const bool gemma = s.post_norms || s.head_dim == 256 || s.ropes.size() > 1;
  return s.experts > 0 ? DecodeVariant::experts
         : gemma       ? DecodeVariant::gemma
                       : DecodeVariant::dense;
}

// The most tokens of a step that the decode kernel takes. 0: it has no code for the model's shape.
// Experts: of one token, where every layer has them. Gemma, on Hopper: of 4, whose two columns each
// fill the MMA's eight, or as many whose inputs fit in shared memory; with 8 the path per operator
// is faster. A card whose shared memory is too small for the model takes fewer (decode_rows).
inline int decode_kernel_tokens(const ModelShape& s, KernelSet kernels) {
  if (s.needs_operators()) return 0;
  const bool all_sparse = std::count(s.moe.begin(), s.moe.end(), true) == s.layers;
  if (s.experts > 0 &&
      (!all_sparse || s.top_k > kMaxChoices || s.experts > kMaxRoutedExperts ||
       s.expert_ffn % 16 != 0 || s.top_k * choice_columns(s.expert_ffn) > kMaxColumns)) {
    return 0;
  }
  const bool gemma = decode_variant(s) == DecodeVariant::gemma;
  const bool heads = s.head_dim == 128 || s.head_dim == (gemma ? 256 : 64);
  const bool covered =
      (!gemma || kernels == KernelSet::hopper) && !s.is_part() && heads &&
      s.heads % s.kv_heads == 0 && s.heads / s.kv_heads <= 8 && s.hidden % 64 == 0 &&
      (s.experts > 0 || (s.ffn % 16 == 0 && s.ffn <= kMaxColumns)) && s.layers <= kMaxLayers &&
      (gemma || !s.post_norms) && s.ropes.size() <= (gemma ? kMaxRopes : 1) && !s.sinks &&
      !s.out_bias && !s.expert_bias;
  if (!covered) return 0;
  if (!gemma) return s.experts > 0 ? 1 : kMaxRows;
  int rows = kMaxGemmaRows;
  while (rows > 0 && input_columns(DecodeVariant::gemma, rows) * s.hidden > kMaxColumns) rows /= 2;
  return rows;
}

// The path of a step without the decode kernel. Experts need the tokens sorted between GEMMs, and a
// post-norm needs whole rows before they are added, as do sums of ranks: they keep their operators
// apart.
inline StepPath forward_path(const ModelShape& s, KernelSet kernels, int tokens) {
  const bool fusible = kernels == KernelSet::hopper && s.experts == 0 && !s.post_norms &&
                       !s.is_part() && !s.out_bias && !s.needs_operators();
  return fusible && tokens <= Linear::kMaxChainedTokens ? StepPath::fused_layer
                                                        : StepPath::per_operator;
}

inline StepPath step_path(const ModelShape& s, KernelSet kernels, WeightFormat format, int tokens) {
  if (has_variant(decode_variant(s), format) && tokens <= decode_kernel_tokens(s, kernels)) {
    return StepPath::decode_kernel;
  }
  return forward_path(s, kernels, tokens);
}

// Whether a step's dense GEMMs multiply in fp8: E4M3 weights by activations quantized to E4M3, at
// twice the rate of bf16 activations. That costs accuracy (about 3 % of a GEMM's result,
// docs/batched-steps.md), as in every engine that runs fp8 checkpoints this way, so only steps do
// it that gain by it:
//   - chains of GEMMs, with a scale per token and 64 or 128 columns. Llama-3-8B on an H200, context
//     1024: 32 sequences 4.02 -> 3.79 ms, 128 9.63 -> 9.08. Llama-3.2-1B (hidden size 2048) gains
//     nothing at 32 tokens, 2 % at 64 and 128
//   - larger steps, with a scale per token, whose narrowest GEMMs (out, down) have tiles for a
//     fifth of the SMs: 256 tokens 9.0 -> 7.5 ms, 512 tokens 14.9 -> 9.5
// RIDGE_CUDA_FP8_PRODUCTS=off in the environment keeps activations in bf16.
inline bool uses_fp8_products(const ModelShape& s, WeightFormat format, KernelSet kernels,
                              int tokens, int sms) {
  const char* const setting = std::getenv("RIDGE_CUDA_FP8_PRODUCTS");
  if (setting && std::string_view(setting) == "off") return false;
  const int q_columns = s.heads * s.head_dim, qkv_rows = q_columns + 2 * s.kv_heads * s.head_dim;
  const bool covered = kernels == KernelSet::hopper && format == WeightFormat::fp8 &&
                       s.experts == 0 && !s.needs_operators() && s.hidden % 128 == 0 &&
                       q_columns % 128 == 0 && s.ffn % 128 == 0 &&
                       std::min({s.hidden, q_columns, s.ffn}) >= 1024;
  if (!covered) return false;
  if (tokens <= Linear::kMaxChainedTokens) {
    const bool gains = tokens > 32 || (tokens > kMaxRows && s.hidden > 2048);
    return gains && forward_path(s, kernels, tokens) == StepPath::fused_layer;
  }
  const int tiles = s.hidden / 128 * ((tokens + 255) / 256);
  return tiles >= 0.2 * sms && s.hidden <= kMaxFp8Hidden &&
         s.ffn <= int(sizeof(float)) * qkv_rows;  // E4M3 in the buffer of qkv
}

// Tokens per tile of the GEMMs by head of latent attention. A tile belongs to one head; a head with
// several tiles reads its matrix once per tile.
inline int head_tile(const ModelShape& s, KernelSet kernels, int tokens) {
  if (kernels == KernelSet::portable) return PortableGemm::tile_tokens(tokens);
  const int tiles = s.heads * ((tokens + kSkinnyTile - 1) / kSkinnyTile);
  return tokens <= 2 * kSkinnyTile && tiles <= kSkinnyMaxTiles ? kSkinnyTile
                                                               : Linear::tile_tokens(tokens);
}

// Whether the experts of a step run as skinny GEMMs, with norm, router and routing in one kernel.
// That is faster up to four tokens per expert on average: a tile has eight, and an expert with more
// reads its weights again. The other limits are those of the kernels.
inline bool uses_skinny_experts(const ModelShape& s, KernelSet kernels, int tokens) {
  return kernels == KernelSet::hopper && s.hidden <= kFusedRoutingMaxHidden &&
         tokens <= kSkinnyMaxTokens &&
         tokens * s.top_k <= std::min(kFusedRoutingMaxAssignments, 4 * s.experts) &&
         max_expert_slots(tokens, s.top_k, s.experts, kSkinnyTile) <=
             kSkinnyMaxTiles * kSkinnyTile &&
         !s.post_norms && !s.is_part();
}

// The most slots of such a step. 0: there is none.
inline int max_skinny_slots(const ModelShape& s, KernelSet kernels) {
  int slots = 0;
  for (int tokens = 1; tokens <= kSkinnyMaxTokens && s.experts > 0; ++tokens) {
    if (!uses_skinny_experts(s, kernels, tokens)) continue;
    slots = std::max(slots, max_expert_slots(tokens, s.top_k, s.experts, kSkinnyTile));
  }
  return slots;
}

}  // namespace ridge::cuda
