#include "engine/cpu/cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "base/units.h"

namespace ridge::cpu {
namespace {

LayerCache shape_of(const Architecture& shape, const RunnerOptions& options) {
  LayerCache cache;
  cache.storage = options.kv;
  cache.kv_heads = shape.kv_heads;
  cache.head_dim = shape.head_dim;
  cache.page_tokens = options.page_tokens;
  cache.latent_dim = shape.latent.kv_rank;
  return cache;
}

size_t scales_of(const LayerCache& cache, int pages) {
  if (cache.storage != KvStorage::int8) return 0;
  return size_t(pages) * size_t(cache.kv_heads) * size_t(cache.page_tokens);
}

// Keys and values, or the latents that are both.
size_t sides(const Architecture& shape) { return shape.latent ? 1 : 2; }

// Total over the sides of all layers; at least 1.
size_t all_sides(size_t one, const Architecture& shape) {
  return std::max<size_t>(sides(shape) * one * size_t(shape.layer_count()), 1);
}

}  // namespace

Cache::Cache(const Architecture& shape, const RunnerOptions& options, int pages)
    : side_bytes_(shape_of(shape, options).page_bytes() * size_t(pages)),
      scales_(scales_of(shape_of(shape, options), pages)),
      memory_(all_sides(side_bytes_, shape)),
      scale_memory_(all_sides(scales_ * sizeof(float), shape)) {
  if (!memory_ || !scale_memory_) {
    throw Error("no memory for a KV cache of {} tokens ({}): try a smaller --context",
                options.cache_tokens, pretty_bytes(double(all_sides(side_bytes_, shape))));
  }
  LayerCache cache = shape_of(shape, options);
  for (int l = 0; l < shape.layer_count(); ++l) {
    const size_t first = sides(shape) * size_t(l), last = first + sides(shape) - 1;
    cache.k = memory_.as<std::byte>() + first * side_bytes_;
    cache.v = memory_.as<std::byte>() + last * side_bytes_;
    if (scales_ > 0) {
      cache.k_scale = scale_memory_.as<float>() + first * scales_;
      cache.v_scale = scale_memory_.as<float>() + last * scales_;
    }
    layers_.push_back(cache);
  }
}

// Keys are stored in groups of kKeyGroup tokens, so whole groups are copied. The elements beyond
// the last token are overwritten before they are read.
void Cache::copy(std::span<const PageCopy> copies) {
  for (const LayerCache& layer : layers_) {
    const size_t head_bytes = size_t(layer.page_tokens) * layer.vector_bytes();
    for (const PageCopy& copy : copies) {
      const size_t tokens = size_t((copy.tokens + kKeyGroup - 1) / kKeyGroup) * size_t{kKeyGroup};
      for (int head = 0; head < layer.kv_heads; ++head) {
        const auto slot = [&](int page) {
          return size_t(page) * size_t(layer.kv_heads) + size_t(head);
        };
        const size_t from = slot(copy.from), to = slot(copy.to);
        for (std::byte* side : {layer.k, layer.v}) {
          std::memcpy(side + to * head_bytes, side + from * head_bytes,
                      tokens * layer.vector_bytes());
        }
        for (float* scales : {layer.k_scale, layer.v_scale}) {
          if (scales == nullptr) continue;
          std::memcpy(scales + to * size_t(layer.page_tokens),
                      scales + from * size_t(layer.page_tokens), tokens * sizeof(float));
        }
      }
    }
  }
}

void Cache::fill(ThreadTeam& team, uint64_t seed) {
  // Masks of the random bits and of the bits set to 1. Sign and mantissa are random, and so are the
  // exponent bits that keep it between 2^-3 and 2 (f16: 12 to 15 of bias 15; f32 and bf16: 124 to
  // 127 of 127).
  struct Pattern {
    uint64_t keep, set;
  };
  constexpr Pattern kPatterns[] = {{0x81ffffff81ffffffULL, 0x3e0000003e000000ULL},
                                   {0x8fff8fff8fff8fffULL, 0x3000300030003000ULL},
                                   {0x81ff81ff81ff81ffULL, 0x3e003e003e003e00ULL},
                                   {~uint64_t{0}, 0}};  // indexed by KvStorage
  const Pattern pattern = kPatterns[static_cast<int>(layers_.front().storage)];
  const size_t words = memory_.size() / sizeof(uint64_t);
  team.run([&](int index) {
    const size_t begin = words * size_t(index) / size_t(team.size());
    const size_t end = words * size_t(index + 1) / size_t(team.size());
    for (size_t i = begin; i < end; ++i) {
      memory_.as<uint64_t>()[i] = (mix64((i + seed) * kWeyl) & pattern.keep) | pattern.set;
    }
  });
  if (scales_ > 0) {
    constexpr float kScale = 1.0f / 64;  // maps bytes to (-2, 2)
    std::fill_n(scale_memory_.as<float>(), scale_memory_.size() / sizeof(float), kScale);
  }
}

}  // namespace ridge::cpu
