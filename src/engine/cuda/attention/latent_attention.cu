#include <algorithm>

#include "engine/cuda/attention/latent_attention.cuh"
#include "engine/cuda/attention/latent_attention_kernel.cuh"
#include "engine/cuda/device/device_limits.h"

namespace ridge::cuda {
namespace {

constexpr int kBlocksPerSm = 2;    // with one row tile
constexpr int kMinSplitPages = 8;  // fewer do not repay the exchange of partial results

// Row tiles of a block: 4 where its shared memory fits, otherwise 1 (GeForce, A10, L4, L40S).
int most_row_tiles() {
  const int bytes = device_limits().shared_bytes;
  return bytes >= latent_shared_bytes(kLatentMaxRowTiles) ? kLatentMaxRowTiles : 1;
}

// Only tiles of several splits have records: n > split pages are in at most 2 n / split splits, and
// all tiles together have kBlocksPerSm sms split pages at most (choose_split).
size_t max_records(int sms) { return size_t(2) * kBlocksPerSm * sms; }

size_t max_items(int heads, int sms, const AttentionBounds& b) {
  const size_t tiles = size_t(b.tokens) * heads / (16 * most_row_tiles()) + b.sequences;
  return tiles + size_t(kBlocksPerSm) * sms;
}

// Tiles of a sequence, and the pages that tile t sees.
int tile_count(const AttentionSequence& s, int heads, int rows) {
  return (s.rows * heads + rows - 1) / rows;
}
int pages_of(const AttentionSequence& s, int heads, int rows, int tile) {
  const int newest = s.past + std::min(s.rows, ((tile + 1) * rows - 1) / heads + 1) - 1;
  return newest / kPageTokens + 1;
}

}  // namespace

LatentAttention::LatentAttention(int heads, int sms)
    : heads_(heads),
      sms_(sms),
      partials_(max_records(sms) * latent_record_size(16 * most_row_tiles())) {
  large_.row_tiles = most_row_tiles();
  if (max_records(sms) > kLatentMaxSplits) throw Error("latent attention on {} SMs", sms);
}

size_t LatentAttention::memory_bytes(int sms) {
  return max_records(sms) * latent_record_size(16 * most_row_tiles()) * sizeof(float);
}

size_t LatentAttention::input_bytes(int heads, int sms, const AttentionBounds& bounds) {
  return 2 * StepInputs::bytes_of<LatentItem>(max_items(heads, sms, bounds)) +
         2 * StepInputs::bytes_of<LatentItem>(max_records(sms));
}

void LatentAttention::plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences) {
  for (TileClass* tiles : {&small_, &large_}) {
    tiles->sequences.clear(), tiles->items.clear(), tiles->split.clear();
  }
  for (const AttentionSequence& s : sequences) {
    (s.rows * heads_ <= 16 ? small_ : large_).sequences.push_back(s);
  }
  for (TileClass* tiles : {&small_, &large_}) {
    const int split_pages = choose_split(*tiles);
    for (const AttentionSequence& s : tiles->sequences) add_tiles(s, *tiles, split_pages);
    tiles->device_items = add_list(inputs, tiles->items);
    tiles->device_split = add_list(inputs, tiles->split);
  }
}

// Pages of a split: an even share of the blocks that the SMs hold together, or what keeps the
// blocks to that number, because a second wave would take as long as the first.
int LatentAttention::choose_split(const TileClass& tiles) const {
  const int rows = 16 * tiles.row_tiles;
  const int together = sms_ * (tiles.row_tiles == 1 ? kBlocksPerSm : 1);
  const auto total = [&](const auto& of_pages) {
    int sum = 0;
    for (const AttentionSequence& s : tiles.sequences) {
      for (int t = 0; t < tile_count(s, heads_, rows); ++t) {
        sum += of_pages(pages_of(s, heads_, rows, t));
      }
    }
    return sum;
  };
  const int pages = total([](int n) { return n; }), count = total([](int) { return 1; });
  int split = std::max(kMinSplitPages, (pages + together - 1) / together);
  while (count < together && total([&](int n) { return (n + split - 1) / split; }) > together) {
    split += split / 8;
  }
  return split;
}

// The last tiles, which see most pages, come first.
void LatentAttention::add_tiles(const AttentionSequence& s, TileClass& to, int split_pages) {
  const int rows = 16 * to.row_tiles;
  for (int t = tile_count(s, heads_, rows) - 1; t >= 0; --t) {
    const int pages = pages_of(s, heads_, rows, t);
    const int splits = (pages + split_pages - 1) / split_pages;
    const int each = (pages + splits - 1) / splits;
    const int records = to.split.empty() ? 0 : to.split.back().partial + to.split.back().splits;
    for (int i = 0; i < splits; ++i) {
      to.items.push_back({s.row,
                          s.rows,
                          s.past,
                          s.pages,
                          t * rows,
                          i * each,
                          std::min(pages, (i + 1) * each),
                          i,
                          splits,
                          records,
                          {}});
    }
    if (splits > 1) to.split.push_back(to.items.back());
  }
}

template <int kRowTiles>
void LatentAttention::launch_tiles(cudaStream_t stream, const LatentAttentionArgs& args,
                                   const TileClass& tiles) const {
  if (tiles.items.empty()) return;
  constexpr int kShared = latent_shared_bytes(kRowTiles);
  [[maybe_unused]] static const bool ready =
      allow_shared_memory(latent_attention_kernel<kRowTiles>, kShared);
  LatentAttentionLaunch launch = {args, args.heads, tiles.device_items, partials_.data()};
  launch_dependent(latent_attention_kernel<kRowTiles>, dim3(int(tiles.items.size())),
                   32 * kLatentParts * kRowTiles, kShared, stream, launch);
  if (tiles.split.empty()) return;
  launch.items = tiles.device_split;
  launch_dependent(latent_combine_kernel, dim3(int(tiles.split.size()), 16 * kRowTiles),
                   kLatentCombineThreads, 0, stream, launch);
}

void LatentAttention::launch(cudaStream_t stream, const LatentAttentionArgs& args) const {
  launch_tiles<1>(stream, args, small_);
  if (large_.row_tiles == 1) return launch_tiles<1>(stream, args, large_);
  launch_tiles<kLatentMaxRowTiles>(stream, args, large_);
}

}  // namespace ridge::cuda
