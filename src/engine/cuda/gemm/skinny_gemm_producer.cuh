// The producer side of a warp of the skinny GEMM: it issues the bulk copies of its weights.
#pragma once

#include "engine/cuda/gemm/skinny_gemm_layout.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

// Issues copies in the order in which SkinnyMath::main_loop() reads them: by pass, segment of K
// (kHeld chunks), unit, chunk.
template <WeightFormat kFormat, int kGroups, int kHeld>
struct WeightLoader {
  using Shared = SkinnyShared<kFormat, kGroups>;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  const SkinnyWork<kFormat, kGroups>& work;
  SkinnyPosition next;        // where the next pass begins
  int units = 0, unit = 0;    // of this warp in the present pass, and the one being loaded
  int segment = 0, left = 0;  // first chunk of the segment; chunks of the unit still to load
  const uint8_t* from = nullptr;
  int scale_row = 0;  // the unit's first row in Tiles::row_scale
  const uint64_t policy = ptx::createpolicy_evict_first();

  __device__ __forceinline__ int segment_chunks() const {
    return min(kHeld, work.chunk_count - segment);
  }
  // Bytes from one unit of this warp to the next.
  __device__ __forceinline__ int stride() const {
    return (work.chunks << work.group_shift) * kChunkBytes;
  }
  __device__ __forceinline__ void start_pass() {
    if (work.chunk_count <= 0) return;
    units = 0;
    while (units == 0) {  // a short pass may have no unit of this warp
      if (next.unit >= work.end) return;
      const int pass_units = work.pass_units(next);
      units = work.group_units(pass_units);
      const int matrix = work.matrix_of(next.tile), block = next.block + work.group;
      from = work.a.tiles.data + work.a.tiles.stride * matrix +
             (size_t(block) * work.chunks + work.first_chunk) * kChunkBytes;
      scale_row = (matrix * work.blocks + block) * kBlockRows;
      next.advance(pass_units, work.blocks);
    }
    unit = segment = 0, left = segment_chunks();
  }

  // Issues the next copy into `slot`, which all lanes have read.
  __device__ __forceinline__ void issue(int slot) {
    if (left <= 0) return;
    const int chunks = min(left, kCopyChunks), bytes = chunks * kChunkBytes;
    if (work.lane == 0) {
      const bool scaled =
          has_row_scale(kFormat) && work.part == 0 && segment == 0 && left == segment_chunks();
      uint8_t* to = work.shared.ring[work.warp][slot];
      uint64_t* full = &work.shared.full[work.warp][slot];
      ptx::mbarrier_arrive_expect_tx(full, bytes + (scaled ? Shared::kScaleBytes : 0));
      ptx::cp_async_bulk(to, from, bytes, full, policy);
      if (scaled) {
        ptx::cp_async_bulk(to + Shared::kCopyBytes, work.a.tiles.row_scale + scale_row,
                           Shared::kScaleBytes, full, policy);
      }
    }
    from += bytes, left -= chunks;
    if (left == 0) next_unit();
  }
  __device__ __forceinline__ void next_unit() {
    from += stride() - segment_chunks() * kChunkBytes;
    scale_row += kBlockRows << work.group_shift;
    if (++unit == units) {
      from -= units * stride() - segment_chunks() * kChunkBytes;  // the first unit's next segment
      segment += kHeld, unit = 0;
      if (segment >= work.chunk_count) return start_pass();
    }
    left = segment_chunks();
  }
};

#endif

}  // namespace ridge::cuda
