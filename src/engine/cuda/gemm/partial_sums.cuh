// The exchange of partial sums of the linear kernel (linear_kernel.cuh), where K is split over
// blocks: stream-K and split-K. A warp's sums are read by the same warp of another block only.
//
// Tiles of 32 tokens: every sum is a 64-bit word with the epoch of its GEMM as a tag, and the
// reader polls the words until all have the tag. No fence and no flag.
// Larger tiles: plain floats, since there the bytes count. The warp signals them by writing the
// epoch to ready[block][warp].
//
// The words are written again by a later GEMM of the chain, after the grid barrier that follows
// the last reader.
#pragma once

#include "base/ptx/memory_order.cuh"
#include "base/ptx/word_pairs.cuh"
#include "engine/cuda/gemm/linear_scheduler.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// The sums of one thread: four for each group of 8 tokens.
template <int kTokens>
class PartialSums {
 public:
  static constexpr int kGroups = kTokens / 8;
  static constexpr bool kTagged = kTokens == 32;

  __device__ PartialSums(const LinearArgs& args, int thread) : args_(args), thread_(thread) {}

  // Writes a group's sums to this block's buffer.
  __device__ __forceinline__ void publish(int group, const float* sums) const {
    if constexpr (kTagged) {
      ulonglong2* const to = words(blockIdx.x, group);
      ptx::st_relaxed(&to->x, tagged(sums[0]), tagged(sums[1]));
      ptx::st_relaxed(&to[kMathThreads].x, tagged(sums[2]), tagged(sums[3]));
    } else {
      __stcg(floats(blockIdx.x, group), float4{sums[0], sums[1], sums[2], sums[3]});
    }
  }
  // All groups are published.
  __device__ __forceinline__ void signal() const {
    if constexpr (kTagged) return;
    __syncwarp();
    if (thread_ % 32 == 0) {
      ptx::st_release(args_.ready + blockIdx.x * kTileBlocks + thread_ / 32, args_.epoch);
    }
  }

  // Waits for the signals of this warp in blocks [first, last).
  __device__ __forceinline__ void wait(int first, int last) const {
    if constexpr (kTagged) return;
    for (int block = first + thread_ % 32; block < last; block += 32) {
      while (ptx::ld_acquire(args_.ready + block * kTileBlocks + thread_ / 32) != args_.epoch) {
      }
    }
    __syncwarp();
  }

  // Adds kCount groups of each of kBlocks blocks to `sums`, in the blocks' order: those of
  // blocks[i], from group `from` on, where include[i]. All loads are in flight together.
  template <int kBlocks, int kCount>
  __device__ __forceinline__ void add(const int (&blocks)[kBlocks], const bool (&include)[kBlocks],
                                      int from, float* sums) const {
    float parts[kBlocks][kCount][4];
    if constexpr (kTagged) {
      poll<kBlocks, kCount>(blocks, include, from, parts);
    } else {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const float4 four = __ldcg(floats(blocks[i], from + j));
          parts[i][j][0] = four.x, parts[i][j][1] = four.y;
          parts[i][j][2] = four.z, parts[i][j][3] = four.w;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (!include[i]) continue;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
#pragma unroll
        for (int v = 0; v < 4; ++v) sums[4 * j + v] += parts[i][j][v];
      }
    }
  }

 private:
  __device__ float4* floats(int block, int group) const {
    return reinterpret_cast<float4*>(args_.partials) +
           (size_t(block) * kGroups + group) * kMathThreads + thread_;
  }
  // The first of a group's two pairs of words, which are kMathThreads apart. They follow the floats
  // of all blocks, so that no float is taken for a word.
  __device__ ulonglong2* words(int block, int group) const {
    const size_t floats = size_t(gridDim.x) * kTileRows * kMaxTileTokens;
    return reinterpret_cast<ulonglong2*>(args_.partials + floats) +
           (size_t(block) * kGroups + group) * 2 * kMathThreads + thread_;
  }
  __device__ unsigned long long tagged(float sum) const {
    return static_cast<unsigned long long>(args_.epoch) << 32 | __float_as_uint(sum);
  }

  template <int kBlocks, int kCount>
  __device__ __forceinline__ void poll(const int (&blocks)[kBlocks], const bool (&include)[kBlocks],
                                       int from, float (&parts)[kBlocks][kCount][4]) const {
    bool complete;
    do {
      complete = true;
      const auto unpack = [&](unsigned long long word, float& to) {
        to = __uint_as_float(unsigned(word));
        complete &= unsigned(word >> 32) == args_.epoch;
      };
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        if (!include[i]) continue;
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const ulonglong2 pair =
                ptx::ld_relaxed_pair(words(blocks[i], from + j) + half * kMathThreads);
            unpack(pair.x, parts[i][j][2 * half]);
            unpack(pair.y, parts[i][j][2 * half + 1]);
          }
        }
      }
    } while (!__all_sync(0xffffffffu, complete));  // the warp stays together
  }

  const LinearArgs& args_;
  const int thread_;
};

// Stream-K: publishes the partial sums of a tile that an earlier block owns. A block has at most
// one such tile, that of its first segment.
template <int kTokens>
__device__ inline void publish_partials(const LinearArgs& args, const float (&d)[kTokens / 2],
                                        int thread) {
  const PartialSums<kTokens> partials(args, thread);
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) partials.publish(j, d + 4 * j);
  partials.signal();
}

// Stream-K, in the block that owns a tile: adds the partial sums of the blocks after it, in their
// order.
template <int kTokens>
__device__ inline void reduce_partials(const GemmTileScheduler& scheduler, int tile,
                                       float (&d)[kTokens / 2], int thread) {
  const PartialSums<kTokens> partials(scheduler.args, thread);
  const int first = blockIdx.x + 1, end = (tile + 1) * scheduler.tile_units();
  int last = first;  // the first block without a part of this tile
  while (scheduler.first_unit(last) < end) ++last;
  partials.wait(first, last);
  constexpr int kCount = min_of(4, kTokens / 8);  // groups in flight
#pragma unroll 1
  for (int block = first; block < last; ++block) {
#pragma unroll
    for (int j = 0; j < kTokens / 8; j += kCount) {
      partials.template add<1, kCount>({block}, {true}, j, d + 4 * j);
    }
  }
}

// Split-K: each of the first kSlices blocks of a tile finishes a slice of its tokens. Every block
// publishes the slices that other blocks finish, and moves the sums of its own slice to the front
// of d.
template <int kTokens>
__device__ inline void publish_slices(const LinearArgs& args, float (&d)[kTokens / 2], int thread) {
  constexpr int kGroups = kTokens / 8, kSliceGroups = kGroups / kSlices;  // of 8 tokens
  const int part = blockIdx.x % args.split_k;
  const PartialSums<kTokens> partials(args, thread);
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    if (j / kSliceGroups != part) partials.publish(j, d + 4 * j);
  }
  partials.signal();
#pragma unroll
  for (int s = 1; s < kSlices; ++s) {
#pragma unroll
    for (int i = 0; i < 4 * kSliceGroups; ++i) {
      d[i] = s == part ? d[s * 4 * kSliceGroups + i] : d[i];
    }
  }
}

// Split-K: adds the other blocks' partial sums of this block's slice, in their order.
template <int kTokens>
__device__ inline void reduce_slice(const LinearArgs& args, float (&d)[kTokens / 2], int thread) {
  constexpr int kSliceGroups = kTokens / 8 / kSlices;
  constexpr int kBlocks = kSliceGroups < kSlices ? kSlices / kSliceGroups : 1;  // in flight
  const int split = args.split_k, part = blockIdx.x % split, first = blockIdx.x - part;
  const PartialSums<kTokens> partials(args, thread);
  partials.wait(first, first + split);
#pragma unroll 1
  for (int at = 0; at < split; at += kBlocks) {
    int blocks[kBlocks];
    bool include[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      blocks[i] = first + min(at + i, split - 1);
      include[i] = at + i != part && at + i < split;
    }
    partials.template add<kBlocks, kSliceGroups>(blocks, include, part * kSliceGroups, d);
  }
}

}  // namespace ridge::cuda
#endif
