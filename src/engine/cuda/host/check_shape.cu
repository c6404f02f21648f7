#include "base/error.h"
#include "engine/cuda/device/kernel_set.h"
#include "engine/cuda/elementwise/rms_norm.cuh"
#include "engine/cuda/host/device_model.h"
#include "engine/cuda/layout/latent_page.h"
#include "engine/cuda/layout/tiles.cuh"
#include "engine/cuda/moe/routing_limits.h"

namespace ridge::cuda {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error("the CUDA engine has no code for {}", what);
}

void check_experts(const ModelShape& s) {
  for (const int columns : {s.ffn, s.expert_ffn, s.shared_ffn}) {
    if (columns % 16) refuse(fmt::format("an MLP of {} columns", columns));
  }
  if (s.experts > kMaxExperts || s.top_k > kMaxTopK) {
    refuse(fmt::format("{} of {} experts per token", s.top_k, s.experts));
  }
  if (s.routing.groups > kMaxRoutingGroups) {
    refuse(fmt::format("{} groups of experts", s.routing.groups));
  }
}

void check_latents(const ModelShape& s, KvFormat kv_format) {
  const ModelShape::Latent& latent = s.latent;
  if (latent.kv_rank > kLatentRank || latent.rope > kLatentRope) {
    refuse(fmt::format("latents of {} and {} columns, only of up to {} and {}", latent.kv_rank,
                       latent.rope, kLatentRank, kLatentRope));
  }
  if (latent.nope % 2 || latent.value % 2) {
    refuse(fmt::format("heads of {} and {}", latent.q_head(), latent.value));
  }
  if (kv_format != KvFormat::bf16) refuse("a cache of latents in another format than --kv bf16");
}

void check_attention(const ModelShape& s) {
  if (s.head_dim != 64 && s.head_dim != 128 && s.head_dim != 256) {
    refuse(fmt::format("heads of {}", s.head_dim));
  }
  if (s.heads % s.kv_heads) refuse(fmt::format("{} heads on {} KV heads", s.heads, s.kv_heads));
  if (s.chunk() % kPageTokens) refuse(fmt::format("attention in chunks of {} tokens", s.chunk()));
}

}  // namespace

void check_shape(const ModelShape& s, KvFormat kv_format) {
  find_device();
  kernels_of_device();  // throws where the card is too old
  s.latent ? check_latents(s, kv_format) : check_attention(s);
  if (s.hidden % 64 || s.hidden > kMaxNormColumns) refuse(fmt::format("{} columns", s.hidden));
  check_experts(s);
}

}  // namespace ridge::cuda
