// Shared memory and schedule of the prefill attention kernel (prefill_attention_kernel.cuh).
//
//   PrefillShared, one block per SM
//   +-------------------------------------------------------------------------+
//   | queries: 128 rows x head_dim                             bf16           |  query producer
//   +-------------------------------------------------------------------------+
//   | ring[3 (head_dim 256: 2)]: [keys, values] of 128 (64) tokens, bf16      |  KV producer
//   +-------------------------------------------------------------------------+
//   | full, empty [slot][keys, values]  queries_full, queries_empty  items[3] |
//   +-------------------------------------------------------------------------+
// Queries, keys and values lie as core matrices of 8 x 8 without a swizzle.
#pragma once

#include "engine/cuda/attention/prefill_attention.cuh"
#include "engine/cuda/attention/softmax.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/pipeline.cuh"

namespace ridge::cuda {

constexpr int kPrefillItems = 3;
constexpr int kMathWarpgroups = 2;

template <int kHeadDim>
struct PrefillShape {
  static constexpr int kRows = 64 * kMathWarpgroups;
  static_assert(kRows == kPrefillTileRows);
  static constexpr int kKeys = kHeadDim == 256 ? 64 : 128;  // of a key tile
  static constexpr int kPages = kKeys / kPageTokens;
  static constexpr int kTileBytes = kKeys * kHeadDim * 2;  // keys, or values, of a tile
  static constexpr int kQueryBytes = kRows * kHeadDim * 2;
  static constexpr int kSlots = kHeadDim == 256 ? 2 : 3;
  static constexpr int kThreads = 128 * (kMathWarpgroups + 1);
  // Registers per thread: at launch, of producers, and of math threads. 65536 per SM, in multiples
  // of 8.
  static constexpr int kProducerRegisters = 40;
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kMathRegisters =
      kLaunchRegisters + (kLaunchRegisters - kProducerRegisters) / kMathWarpgroups / 8 * 8;
  static constexpr int kSharedBytes = kQueryBytes + kSlots * 2 * kTileBytes + 512;
};

#ifdef RIDGE_HOPPER

// A tile of rows and the keys that any of its rows attends to.
template <int kHeadDim>
struct PrefillItem {
  using Shape = PrefillShape<kHeadDim>;
  PrefillTile tile;
  int packed;     // rows of the sequence
  int first;      // the first of them in this tile
  int low, high;  // keys
  int key_tile_low, key_tile_high;

  PrefillItem() = default;
  __device__ PrefillItem(const PrefillAttentionLaunch& launch, const PrefillTile& t) : tile(t) {
    const int window = launch.args.window;
    packed = tile.rows * launch.group.by, first = tile.tile * Shape::kRows;
    high = tile.past + min(tile.rows, launch.group.quotient(first + Shape::kRows - 1) + 1);
    low = window > 0 ? max(0, tile.past + launch.group.quotient(first) + 1 - window) : 0;
    key_tile_low = low / Shape::kKeys, key_tile_high = (high + Shape::kKeys - 1) / Shape::kKeys;
  }
  __device__ int head(const PrefillAttentionLaunch& launch, int row) const {
    return tile.kv_head * launch.group.by + launch.group.remainder(row);
  }
  // Where the output of a row of the sequence begins; it continues as wide_at does.
  __device__ uint16_t* output(const PrefillAttentionLaunch& launch, int row) const {
    const int token = launch.group.quotient(row), head = row - token * launch.group.by;
    return launch.args.out + wide_at((tile.kv_head * launch.group.by + head) * kHeadDim,
                                     tile.row + token, launch.args.out_tokens);
  }
};

template <int kHeadDim>
struct PrefillShared {
  using Shape = PrefillShape<kHeadDim>;
  uint8_t queries[Shape::kQueryBytes];
  uint8_t ring[Shape::kSlots][2][Shape::kTileBytes];  // keys, values
  uint64_t full[Shape::kSlots][2], empty[Shape::kSlots][2];
  uint64_t queries_full, queries_empty;
  // The items whose queries come next, are in use, and whose outputs are being written. An item
  // without rows is the end.
  PrefillItem<kHeadDim> items[kPrefillItems];
};

// The tiles of this block, read one ahead.
class PrefillScheduler {
 public:
  __device__ explicit PrefillScheduler(const PrefillAttentionLaunch& launch)
      : launch_(launch), at_(launch.begin[blockIdx.x]), end_(launch.begin[blockIdx.x + 1]) {
    read();
  }
  __device__ bool more() const { return at_ < end_; }
  __device__ PrefillTile next() {
    const PrefillTile tile = next_;
    ++at_;
    read();
    return tile;
  }

 private:
  __device__ void read() {
    if (more()) next_ = launch_.tiles[at_];
  }
  const PrefillAttentionLaunch& launch_;
  int at_, end_;
  PrefillTile next_;
};

#endif

}  // namespace ridge::cuda
