// The attention block of a layer: norm, projections, RoPE, attention over the cache, output.
#include <array>
#include <cstring>

#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/elementwise.h"

namespace ridge::cpu {
namespace {

// Whether GEMMs of these weights round their activations to bf16 or int8 on a CPU with AMX.
// Attention may round to bf16 then. Models in f32 and f16 are computed in f32 throughout.
bool rounds_to_bf16(Storage storage) { return storage != Storage::f32 && storage != Storage::f16; }

}  // namespace

void CpuRunner::attend(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  const LayerShape& layer = shape().layers[size_t(l)];
  const LatentAttention& latent = shape().latent;
  clock.begin("attn_norm");
  if (latent) {
    norm(w.attn_norm, tokens);
    project_latents(l, tokens, clock);
  } else {
    project(l, tokens, clock);
  }
  clock.begin("rope_cache");
  const Rope& rope = shape().ropes[size_t(layer.rope)];
  const bool rotates = !rope.frequency.empty();
  const RopeStore what{.q = step_.q.data(),
                       .k = step_.k.data(),
                       .v = step_.v.data(),
                       .q_stride = step_.q.stride(),
                       .kv_stride = step_.k.stride(),
                       .heads = shape().heads,
                       .q_norm = floats_of(w.q_norm),
                       .k_norm = floats_of(latent ? w.kv_a_norm : w.k_norm),
                       .norm_eps = latent ? latent.norm_eps : shape().norm_eps,
                       .rope = &rope,
                       .unit = shape().unit_qk && rotates,
                       .temperature_scale = rotates ? 0 : shape().temperature_scale,
                       .temperature_floor = shape().temperature_floor};
  rope_and_store(team_, what, cache_.layer(l), slices_);
  if (latent) {
    // A head's q . k is the same sum whether its key is made from the latent, or its query is
    // multiplied by what would make it.
    clock.begin("mla_up_kv");
    multiply_heads(packed.absorb, step_.q_heads, latent.q_head(), step_.q, shape().head_dim,
                   tokens);
  }

  clock.begin("attention");
  const AttentionRules rules{.heads = shape().heads,
                             .scale = shape().query_scale,
                             .softcap = shape().attention_softcap,
                             .window = layer.window,
                             .chunked = layer.chunked,
                             .sinks = floats_of(w.sinks),
                             .tiles = !options_.invariant && rounds_to_bf16(w.out.storage)};
  const Rows& mixed = latent ? step_.mixed_latent : step_.mixed;
  attention(team_, rules, cache_.layer(l), slices_, step_.q.data(), step_.q.stride(), mixed.data(),
            mixed.stride());
  if (latent) {
    clock.begin("mla_up_kv");
    multiply_heads(packed.expand, step_.mixed_latent, latent.kv_rank, step_.mixed, latent.value,
                   tokens);
  }

  clock.begin("out");
  set_input(step_.input, step_.mixed, tokens, {packed.out.input_kind(tokens)});
  add_block(packed.out, step_.input, w.post_attn_norm, tokens, "attn_all_reduce", clock,
            w.out_bias);
}

void CpuRunner::project(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  const std::array kinds{packed.q.input_kind(tokens), packed.k.input_kind(tokens),
                         packed.v.input_kind(tokens)};
  set_normed(w.attn_norm, tokens, kinds);
  clock.begin("qkv");
  const Gemm gemms[] = {
      {.w = &packed.q,
       .x = &step_.input,
       .y = step_.q.data(),
       .stride = step_.q.stride(),
       .bias = floats_of(w.q_bias)},
      {.w = &packed.k,
       .x = &step_.input,
       .y = step_.k.data(),
       .stride = step_.k.stride(),
       .bias = floats_of(w.k_bias)},
      {.w = &packed.v,
       .x = &step_.input,
       .y = step_.v.data(),
       .stride = step_.v.stride(),
       .bias = floats_of(w.v_bias)},
  };
  multiply(team_, gemms);
}

// The rows that the cache holds, and the queries: what RoPE rotates of them lies behind the room
// for the part in the latent space.
void CpuRunner::project_latents(int l, int tokens, OperatorClock& clock) {
  const LayerWeights& w = weights_.layers[size_t(l)];
  const PackedLayer& packed = layers_[size_t(l)];
  const LatentAttention& latent = shape().latent;
  clock.begin("mla_down");
  set_input(
      step_.input, step_.normed, tokens,
      {packed.kv_a.input_kind(tokens), (packed.q_a ? packed.q_a : packed.q).input_kind(tokens)});
  const Gemm down[] = {
      {.w = &packed.kv_a, .x = &step_.input, .y = step_.k.data(), .stride = step_.k.stride()},
      {.w = &packed.q_a,
       .x = &step_.input,
       .y = step_.q_latent.data(),
       .stride = step_.q_latent.stride()}};
  multiply(team_, std::span(down).first(packed.q_a ? 2 : 1));
  if (packed.q_a) {
    rms_norm(team_, step_.q_latent.data(), step_.q_latent.stride(), tokens, latent.q_rank,
             w.q_a_norm.data(), latent.norm_eps, step_.q_latent.data(), step_.q_latent.stride());
    clock.begin("mla_up_q");
    set_input(step_.input, step_.q_latent, tokens, {packed.q.input_kind(tokens)});
  } else {
    clock.begin("qkv");
  }
  const Gemm up{.w = &packed.q,
                .x = &step_.input,
                .y = step_.q_heads.data(),
                .stride = step_.q_heads.stride()};
  multiply(team_, {&up, 1});
  for (int t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < shape().heads; ++h) {
      std::memcpy(step_.q.row(t) + h * shape().head_dim + latent.kv_rank,
                  step_.q_heads.row(t) + h * latent.q_head() + latent.nope,
                  size_t(latent.rope) * sizeof(float));
    }
  }
}

void CpuRunner::multiply_heads(const std::vector<PackedMatrix>& w, const Rows& x, int64_t x_step,
                               const Rows& y, int64_t y_step, int tokens) {
  step_.head_input.set_parts(team_, x.data(), x.stride(), tokens, w[0].columns(), x_step,
                             int(w.size()), std::array{w[0].input_kind(tokens)});
  head_gemms_.clear();
  for (size_t h = 0; h < w.size(); ++h) {
    head_gemms_.push_back({.w = &w[h],
                           .x = &step_.head_input,
                           .first = int(h) * tokens,
                           .y = y.data() + int64_t(h) * y_step,
                           .stride = y.stride()});
  }
  multiply(team_, head_gemms_);
}

}  // namespace ridge::cpu
