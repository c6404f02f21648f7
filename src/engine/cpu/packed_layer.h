// A layer's matrices as the CPU's GEMMs read them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "engine/cpu/matmul.h"
#include "engine/weights/weights.h"

namespace ridge::cpu {

struct GatedMlp {
  PackedMatrix gate, up, down;
};

struct PackedLayer {
  PackedMatrix q, k, v, out, router;
  GatedMlp mlp, shared;
  std::vector<GatedMlp> experts;
  // Latent attention. kv_b is cut into heads: `absorb` brings a head's query into the latent space
  // [kv_rank x nope], the key's rows transposed, and `expand` makes its values [value x kv_rank].
  PackedMatrix q_a, kv_a;
  std::vector<PackedMatrix> absorb, expand;

  double repacked_bytes = 0;  // copied into another layout
  // The bytes that decoding streams, routers left out.
  std::vector<std::span<const std::byte>> memory() const;
};

// `invariant`: as PackedMatrix has it. Copies that the layer needs are added to `owners`.
PackedLayer pack_layer(const LayerWeights& layer, const Architecture& shape, bool invariant,
                       ThreadTeam& team, std::vector<std::shared_ptr<const void>>& owners);

}  // namespace ridge::cpu
