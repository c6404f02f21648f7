#include <algorithm>

#include "engine/cuda/layout/latent_page.h"
#include "engine/cuda/portable/gemm.cuh"
#include "engine/cuda/step/forward_buffers.cuh"
#include "engine/cuda/step/step_path.cuh"

namespace ridge::cuda {
namespace {

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// bf16 at wide_at.
uint16_t* take_activations(Workspace& workspace, size_t count, int columns) {
  return workspace.take<uint16_t>(count * round_up(size_t(columns), 64));
}

// Of the largest step, a multiple of the largest tile.
size_t padded_tokens(const StepBounds& bounds) { return round_up(size_t(bounds.tokens), 256); }

}  // namespace

int expert_tile(const ModelShape& s, KernelSet kernels, int tokens) {
  const int mean = std::max(1, tokens * s.top_k / s.experts);
  if (kernels == KernelSet::portable) return PortableGemm::tile_tokens(mean);
  return uses_skinny_experts(s, kernels, tokens) ? kSkinnyTile : Linear::tile_tokens(mean);
}

ForwardBuffers::ForwardBuffers(Workspace& workspace, const ModelShape& s,
                               const StepBounds& bounds) {
  const size_t tokens = padded_tokens(bounds), rows = size_t(bounds.logit_rows);
  residual = workspace.take<float>(tokens * s.hidden);
  block_output =
      s.post_norms || s.partial_sums ? workspace.take<float>(tokens * s.hidden) : nullptr;
  squares = workspace.take<float>(size_t(Linear::kMaxChainedTokens) * (s.hidden / 128 + 1));
  x = take_activations(workspace, tokens, s.hidden);
  token_scale = workspace.take<float>(tokens);
  qkv = nullptr, q = attended = nullptr;
  q_normed = q_nope = q_rope = attended_latent = nullptr;
  q_heads = q_latent = values = nullptr;
  if (s.latent) {
    take_latents(workspace, s, tokens);
  } else {
    const int q_columns = s.heads * s.head_dim;
    qkv = workspace.take<float>(tokens * (q_columns + 2 * s.kv_heads * s.head_dim));
    q = workspace.take<uint16_t>(tokens * q_columns);
    attended = take_activations(workspace, tokens, q_columns);
  }
  activated = take_activations(workspace, tokens, s.ffn);
  logits = workspace.take<float>(rows * s.head_columns());
  argmax = workspace.take<int>(rows);
  best = workspace.take<unsigned long long>(rows);

  router_logits = nullptr, expert_weight = nullptr, expert = slot = expert_count = nullptr;
  source = tile_expert = tile_count = nullptr, arrived = nullptr;
  expert_x = expert_activated = nullptr, expert_rows = nullptr;
  expert_input_weight = nullptr, shared_activated = nullptr;
  if (s.experts > 0) take_experts(workspace, s, bounds);
}

void ForwardBuffers::take_experts(Workspace& workspace, const ModelShape& s,
                                  const StepBounds& bounds) {
  // Slots grow with the tokens and with the tile; other kernels' tiles are smaller.
  const int tile = Linear::tile_tokens(std::max(1, bounds.tokens * s.top_k / s.experts));
  const size_t slots = size_t(max_expert_slots(bounds.tokens, s.top_k, s.experts, tile));
  const size_t tokens = padded_tokens(bounds), choices = tokens * s.top_k;
  router_logits = workspace.take<float>(tokens * s.experts);
  expert_weight = workspace.take<float>(choices);
  expert = workspace.take<int>(choices);
  slot = workspace.take<int>(choices);
  expert_count = workspace.take<int>(s.experts);
  source = workspace.take<int>(slots);
  tile_expert = workspace.take<int>(slots / kSkinnyTile + 1);
  tile_count = workspace.take<int>(1);
  arrived = workspace.take<unsigned>(1);
  expert_x = take_activations(workspace, slots, s.hidden);
  expert_activated = take_activations(workspace, slots, s.expert_ffn);
  expert_rows = workspace.take<float>(slots * s.hidden);
  if (s.routing.scales_input) expert_input_weight = workspace.take<float>(choices);
  if (s.shared_ffn > 0) shared_activated = take_activations(workspace, tokens, s.shared_ffn);
}

void ForwardBuffers::take_latents(Workspace& workspace, const ModelShape& s, size_t tokens) {
  const ModelShape::Latent& latent = s.latent;
  const size_t q_columns = size_t(s.heads) * latent.q_head(), slots = tokens * s.heads;
  const size_t down = round_up(latent.q_rank > 0 ? size_t(latent.q_rank) : q_columns, kBlockRows);
  qkv = workspace.take<float>(tokens * (down + latent.kv_rank + latent.rope));
  attended = take_activations(workspace, tokens, s.heads * latent.value);
  if (latent.q_rank > 0) {
    q_normed = take_activations(workspace, tokens, latent.q_rank);
    q_heads = workspace.take<float>(tokens * q_columns);
  }
  q_nope = take_activations(workspace, slots, latent.nope);
  q_rope = workspace.take<uint16_t>(slots * kLatentRope);
  q_latent = workspace.take<float>(slots * kLatentRank);
  attended_latent = take_activations(workspace, slots, kLatentRank);
  values = workspace.take<float>(slots * latent.value);
}

}  // namespace ridge::cuda
