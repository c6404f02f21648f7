#include <algorithm>
#include <functional>
#include <utility>

#include "engine/cuda/attention/prefill_attention.cuh"
#include "engine/cuda/attention/prefill_attention_kernel.cuh"

namespace ridge::cuda {
namespace {

// Keys and values that the running blocks share: they must stay in the 50 MB L2 of Hopper.
constexpr size_t kL2Bytes = size_t{32} << 20;
// Cost of a tile of rows besides its keys, in tiles of 128 keys: queries, the latency of the first
// keys and the output.
constexpr int kTileCost = 1;

template <int kHeadDim>
void launch_shape(cudaStream_t stream, int sms, const PrefillAttentionLaunch& launch) {
  using Shape = PrefillShape<kHeadDim>;
  [[maybe_unused]] static const bool ready =
      allow_shared_memory(prefill_attention_kernel<kHeadDim>, Shape::kSharedBytes);
  launch_dependent(prefill_attention_kernel<kHeadDim>, dim3(sms), Shape::kThreads,
                   Shape::kSharedBytes, stream, launch);
}

}  // namespace

// Longest sequences first. KV heads are processed in passes of as many as fit L2; within a pass the
// late tiles, which have the most keys, come first. Each tile goes to the block with the least
// work.
void plan_prefill_attention(std::vector<AttentionSequence>& sequences, int heads, int kv_heads,
                            int head_dim, int sms, PrefillPlan& plan) {
  const int group = heads / kv_heads;
  std::sort(sequences.begin(), sequences.end(),
            [](const AttentionSequence& a, const AttentionSequence& b) {
              const int a_keys = a.past + a.rows, b_keys = b.past + b.rows;
              return a_keys != b_keys ? a_keys > b_keys : a.row < b.row;
            });
  plan.loads.clear();
  for (int b = 0; b < sms; ++b) plan.loads.emplace_back(0, b);  // in order, which is a heap
  plan.tiles_of_block.resize(size_t(sms));
  for (std::vector<PrefillTile>& tiles : plan.tiles_of_block) tiles.clear();
  const auto give_to_least_loaded = [&](const PrefillTile& tile, int cost) {
    std::pop_heap(plan.loads.begin(), plan.loads.end(), std::greater<>());
    plan.tiles_of_block[size_t(plan.loads.back().second)].push_back(tile);
    plan.loads.back().first += cost;
    std::push_heap(plan.loads.begin(), plan.loads.end(), std::greater<>());
  };
  for (const AttentionSequence& s : sequences) {
    const size_t bytes = size_t(s.past + s.rows) * head_dim * 4;
    const int passes = std::min(kv_heads, int(bytes * kv_heads / kL2Bytes) + 1);
    const int tiles = (s.rows * group + kPrefillTileRows - 1) / kPrefillTileRows;
    for (int pass = 0; pass < passes; ++pass) {
      for (int tile = tiles - 1; tile >= 0; --tile) {
        const int keys = s.past + std::min(s.rows, ((tile + 1) * kPrefillTileRows - 1) / group + 1);
        for (int h = pass * kv_heads / passes; h < (pass + 1) * kv_heads / passes; ++h) {
          give_to_least_loaded({s.row, s.rows, s.past, s.pages, tile, h},
                               (keys + 127) / 128 + kTileCost);
        }
      }
    }
  }
  plan.tiles.clear();
  plan.begin.assign(1, 0);
  for (const std::vector<PrefillTile>& tiles : plan.tiles_of_block) {
    plan.tiles.insert(plan.tiles.end(), tiles.begin(), tiles.end());
    plan.begin.push_back(int(plan.tiles.size()));
  }
}

void launch_prefill_attention(cudaStream_t stream, int sms, const PrefillAttentionLaunch& launch) {
  switch (launch.args.head_dim) {
    case 64:
      return launch_shape<64>(stream, sms, launch);
    case 128:
      return launch_shape<128>(stream, sms, launch);
    case 256:
      return launch_shape<256>(stream, sms, launch);
  }
  throw Error("attention: head_dim {} is not 64, 128 or 256", launch.args.head_dim);
}

}  // namespace ridge::cuda
