// A layer's first block where attention is latent (DeepSeek): the operators between the norm and
// the output projection (attention/latent_rows.cuh).
#include <algorithm>

#include "engine/cuda/attention/latent_rows.cuh"
#include "engine/cuda/step/forward.cuh"

namespace ridge::cuda {
namespace {

// An upper bound of the tiles of the GEMMs by head. Only skinny tiles are smaller than 32 tokens.
size_t max_head_tiles(const ModelShape& s, const StepBounds& bounds) {
  const size_t padded = (size_t(bounds.tokens) + 255) / 256 * 256;
  return std::max(size_t(kSkinnyMaxTiles), s.heads * padded / 32);
}

}  // namespace

size_t Forward::latent_input_bytes(const ModelShape& s, int sms, const StepBounds& bounds,
                                   const AttentionBounds& attention) {
  return LatentAttention::input_bytes(s.heads, sms, attention) +
         StepInputs::bytes_of<int>(max_head_tiles(s, bounds)) + StepInputs::bytes_of<int>(1) +
         StepInputs::bytes_of<int>(size_t(kSkinnyMaxTiles) * kSkinnyTile);
}

// The plan of attention, and the lists of the GEMMs by head: each head has the same tiles.
void Forward::prepare_latents(StepInputs& inputs) {
  const ModelShape& s = w_.shape;
  latent_attention_->plan(inputs, sequences_);
  const int tile = head_tile(s, kernels_, step_.tokens);
  const int tiles = (step_.tokens + tile - 1) / tile;  // of a head
  step_.head_tile = tile, step_.head_padded = tiles * tile;
  const StepInput<int> count = inputs.add<int>(1);
  const StepInput<int> matrices = inputs.add<int>(size_t(s.heads) * tiles);
  *count.host = s.heads * tiles;
  for (int i = 0; i < s.heads * tiles; ++i) matrices.host[i] = i / tiles;
  step_.head_tile_count = count.device, step_.head_tile_matrix = matrices.device;
  if (tile != kSkinnyTile || kernels_ == KernelSet::portable) return;
  const StepInput<int> source = inputs.add<int>(size_t(s.heads) * step_.head_padded);
  for (int i = 0; i < s.heads * step_.head_padded; ++i) {
    source.host[i] = i % step_.head_padded < step_.tokens ? 0 : -1;  // any token, or padding
  }
  step_.head_source = source.device;
}

// rows[slot] = the head's matrix times x of the slot.
void Forward::head_gemm(cudaStream_t stream, const Matrices& m, int layer, const uint16_t* x,
                        float* rows, int stride) {
  const int slots = w_.shape.heads * step_.head_padded;
  LinearArgs args;
  args.tokens = args.padded = slots, args.matrices = w_.shape.heads;
  args.tile_count = step_.head_tile_count, args.tile_matrix = step_.head_tile_matrix;
  args.rows = rows, args.stride = stride;
  args = gemm_args(m, layer * w_.shape.heads, x, args);
  if (portable_gemm_) return portable_gemm_->launch(stream, m.format, args, step_.head_tile);
  if (step_.head_tile != kSkinnyTile) return linear_->launch(stream, &args, 1, step_.head_tile);
  SkinnyGemmArgs skinny = {args};
  skinny.source = step_.head_source;
  skinny_gemm(stream, m.format, sms_, skinny);
}

// The queries of all heads; the tokens' rows join the cache.
void Forward::latent_queries(cudaStream_t stream, int layer) {
  const ModelShape& s = w_.shape;
  const ModelShape::Latent& latent = s.latent;
  const float magnitude = s.ropes[size_t(w_.rope_of(layer))].magnitude;
  const int down_rows = w_.qkv_rows(), q_rows = s.heads * latent.q_head();
  timer_.mark(stream, "mla_down");
  gemm(stream, w_.qkv, layer, b_.x, qkv_args(layer));
  const bool direct = latent.q_rank == 0;
  const AppendLatentsArgs append = {b_.qkv,
                                    down_rows,
                                    w_.kv_a_row(),
                                    latent.kv_rank,
                                    latent.rope,
                                    latent.q_rank,
                                    w_.vector(VectorKind::kv_a_norm, layer),
                                    w_.vector(VectorKind::q_a_norm, layer),
                                    latent.norm_eps,
                                    w_.frequency_of(layer),
                                    magnitude,
                                    step_.kv_slots,
                                    reinterpret_cast<uint16_t*>(w_.kv_of(layer)),
                                    b_.q_normed,
                                    step_.padded};
  const SplitQueriesArgs split = {direct ? b_.qkv : b_.q_heads,
                                  direct ? down_rows : q_rows,
                                  s.heads,
                                  latent.nope,
                                  latent.rope,
                                  w_.frequency_of(layer),
                                  magnitude,
                                  step_.kv_slots,
                                  b_.q_nope,
                                  b_.q_rope,
                                  step_.head_padded};
  timer_.mark(stream, "rope_cache");
  if (direct) {
    append_and_split(stream, step_.tokens, append, split);
  } else {
    append_latents(stream, step_.tokens, append);
    timer_.mark(stream, "mla_up_q");
    LinearArgs up;
    up.rows = b_.q_heads, up.stride = q_rows;
    gemm(stream, w_.q_b, layer, b_.q_normed, up);
    timer_.mark(stream, "rope_cache");
    split_queries(stream, step_.tokens, split);
  }
  timer_.mark(stream, "mla_up_kv");
  head_gemm(stream, w_.absorb, layer, b_.q_nope, b_.q_latent, kLatentRank);
}

void Forward::latent_attention(cudaStream_t stream, int layer) {
  const ModelShape& s = w_.shape;
  latent_queries(stream, layer);
  timer_.mark(stream, "attention");
  latent_attention_->launch(
      stream, {b_.q_latent, b_.q_rope, reinterpret_cast<const uint16_t*>(w_.kv_of(layer)),
               step_.pages, s.query_scale, s.heads, step_.head_padded, b_.attended_latent});
  timer_.mark(stream, "mla_up_kv");
  head_gemm(stream, w_.expand, layer, b_.attended_latent, b_.values, s.latent.value);
  merge_heads(stream, step_.tokens,
              {b_.values, s.heads, s.latent.value, b_.attended, step_.padded, step_.head_padded});
}

}  // namespace ridge::cuda
