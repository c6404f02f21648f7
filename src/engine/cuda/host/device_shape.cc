#include "engine/cuda/host/device_shape.h"

#include <algorithm>

#include "base/error.h"
#include "engine/cuda/layout/latent_page.h"

namespace ridge {

using cuda::ModelShape;
using cuda::WideHeads;

namespace {

void set_layers(const Architecture& a, ModelShape& s) {
  for (const LayerShape& layer : a.layers) {
    s.window.push_back(layer.window);
    s.rope.push_back(layer.rope);
    s.moe.push_back(layer.moe);
    s.chunked.push_back(layer.chunked);
    s.no_rope.push_back(a.ropes[size_t(layer.rope)].frequency.empty());
  }
  for (std::vector<bool>* some : {&s.chunked, &s.no_rope}) {
    if (std::count(some->begin(), some->end(), true) == 0) some->clear();
  }
}

void set_attention(const Architecture& a, const WideHeads& heads, ModelShape& s) {
  s.heads = a.heads, s.kv_heads = a.kv_heads, s.head_dim = heads.wide();
  s.query_scale = a.query_scale, s.attention_softcap = a.attention_softcap;
  s.temperature_scale = a.temperature_scale, s.temperature_floor = a.temperature_floor;
  // A norm without weights after RoPE is one before it: a rotation changes no root mean square.
  s.qk_norm = a.qk_norm || a.unit_qk;
  s.qkv_bias = a.qkv_bias, s.sinks = a.sinks, s.out_bias = a.out_bias;
  for (const Rope& rope : a.ropes) {
    if (a.unit_qk && rope.magnitude != 1) {
      throw Error("the CUDA engine has no code for q and k norms after a RoPE of magnitude {}",
                  rope.magnitude);
    }
    s.ropes.push_back(
        {a.latent ? rope.frequency : heads.frequency(rope.frequency), rope.magnitude});
  }
  if (!a.latent) return;
  s.head_dim = cuda::kLatentRow;
  s.latent = {a.latent.kv_rank, a.latent.q_rank, a.latent.nope,
              a.latent.rope,    a.latent.value,  a.latent.norm_eps};
}

void set_experts(const Architecture& a, ModelShape& s) {
  s.experts = a.experts, s.top_k = a.top_k, s.expert_ffn = a.expert_ffn;
  s.shared_ffn = a.shared_ffn, s.expert_bias = a.expert_bias;
  s.normalize_top_k = a.normalize_top_k;
  s.routing = a.routing;
}

}  // namespace

WideHeads wide_heads(const Architecture& a) { return WideHeads(a.head_dim, a.ropes[0].dims()); }

ModelShape model_shape(const Architecture& a, const WideHeads& heads) {
  ModelShape s;
  s.layers = a.layer_count(), s.hidden = a.hidden, s.ffn = a.ffn, s.vocab = a.vocab;
  s.gelu = a.activation == Activation::gelu_tanh;
  s.clamped_swiglu = a.activation == Activation::clamped_swiglu;
  s.norm_eps = a.norm_eps, s.embed_scale = a.embed_scale, s.logit_softcap = a.logit_softcap;
  s.post_norms = a.post_norms;
  set_layers(a, s);
  set_attention(a, heads, s);
  set_experts(a, s);
  return s;
}

cuda::KvFormat kv_format_of(KvStorage kv) {
  switch (kv) {
    case KvStorage::bf16:
      return cuda::KvFormat::bf16;
    case KvStorage::f16:
      return cuda::KvFormat::f16;
    case KvStorage::fp8:
      return cuda::KvFormat::fp8;
    case KvStorage::int8:
      return cuda::KvFormat::int8;
    case KvStorage::f32:
      break;
  }
  throw Error("on CUDA the KV cache is bf16, f16, fp8 or int8");
}

void check_cuda_model(const Architecture& a, KvStorage kv, bool cut) {
  const ModelShape shape = model_shape(a, wide_heads(a));
  if (!cut) return cuda::check_shape(shape, kv_format_of(kv));
  if (shape.needs_operators()) {
    throw Error("{} runs on one GPU, not on ranks: without --ranks, or with --device cpu",
                a.family);
  }
}

}  // namespace ridge
