#include <algorithm>

#include "engine/cuda/portable/gemm.cuh"
#include "engine/cuda/step/forward_buffers.cuh"
#include "engine/cuda/step/step_path.cuh"

namespace ridge::cuda {
namespace {

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int expert_tile(const ModelShape& s, KernelSet kernels, int tokens) {
  const int mean = std::max(1, tokens * s.top_k / s.experts);
  if (kernels == KernelSet::portable) return PortableGemm::tile_tokens(mean);
  return uses_skinny_experts(s, kernels, tokens) ? kSkinnyTile : Linear::tile_tokens(mean);
}

ForwardBuffers::ForwardBuffers(Workspace& workspace, const ModelShape& s,
                               const StepBounds& bounds) {
  const size_t tokens = round_up(size_t(bounds.tokens), 256);  // of the largest tile
  const size_t rows = size_t(bounds.logit_rows);
  const auto activations = [&](size_t count, int columns) {
    return workspace.take<uint16_t>(count * round_up(size_t(columns), 64));
  };
  const int q_columns = s.heads * s.head_dim;
  residual = workspace.take<float>(tokens * s.hidden);
  qkv = workspace.take<float>(tokens * (q_columns + 2 * s.kv_heads * s.head_dim));
  block_output =
      s.post_norms || s.partial_sums ? workspace.take<float>(tokens * s.hidden) : nullptr;
  squares = workspace.take<float>(size_t(Linear::kMaxChainedTokens) * (s.hidden / 128 + 1));
  x = activations(tokens, s.hidden);
  token_scale = workspace.take<float>(tokens);
  q = workspace.take<uint16_t>(tokens * q_columns);
  attended = activations(tokens, q_columns);
  activated = activations(tokens, s.ffn);
  logits = workspace.take<float>(rows * s.head_columns());
  argmax = workspace.take<int>(rows);
  best = workspace.take<unsigned long long>(rows);

  router_logits = nullptr, expert_weight = nullptr, expert = slot = expert_count = nullptr;
  source = tile_expert = tile_count = nullptr, arrived = nullptr;
  expert_x = expert_activated = nullptr, expert_rows = nullptr;
  if (s.experts == 0) return;
  // Slots grow with the tokens and with the tile; other kernels' tiles are smaller.
  const int tile = Linear::tile_tokens(std::max(1, bounds.tokens * s.top_k / s.experts));
  const size_t slots = size_t(max_expert_slots(bounds.tokens, s.top_k, s.experts, tile));
  const size_t choices = tokens * s.top_k;
  router_logits = workspace.take<float>(tokens * s.experts);
  expert_weight = workspace.take<float>(choices);
  expert = workspace.take<int>(choices);
  slot = workspace.take<int>(choices);
  expert_count = workspace.take<int>(s.experts);
  source = workspace.take<int>(slots);
  tile_expert = workspace.take<int>(slots / kSkinnyTile + 1);
  tile_count = workspace.take<int>(1);
  arrived = workspace.take<unsigned>(1);
  expert_x = activations(slots, s.hidden);
  expert_activated = activations(slots, s.expert_ffn);
  expert_rows = workspace.take<float>(slots * s.hidden);
}

}  // namespace ridge::cuda
