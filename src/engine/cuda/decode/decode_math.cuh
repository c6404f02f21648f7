// The decode kernel's multiplying warps: 64 columns g belong to warp g mod 8, which reads their
// activations and adds up its share of K for a block of 16 rows; a finishing warp sums the shares.
#pragma once

#include "engine/cuda/decode/decode_operands.cuh"
#include "engine/cuda/decode/decode_page_attention.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

template <WeightFormat kFormat, int kRows>
struct Multiplier {
  const DecodeArgs& args;
  Shared& shared;
  int warp, lane;
  PipelineState place;      // in the ring
  PipelineState sum_place;  // among the partial sums

  using Use = Operands<kFormat, kRows>;
  using Sums = typename Use::Sums;
  static constexpr int kStage = stage_bytes(kFormat);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;
  static constexpr int kChunkBytes = format_info(kFormat).columns * kRows * 2;  // of activations
  static constexpr int kThreadsHere = kConsumers * 32;

  // acc += the ring's next stage, of `chunks`, x its activations. With kFull all addresses are
  // constants apart from two: a warp passes through every stage, so what it does besides loading
  // and multiplying adds up.
  template <bool kFull>
  __device__ void stage(Sums& acc, int chunks, const typename Use::Lane& at) {
    const int first = warp * Use::kChunksOfGroup;
    ptx::mbarrier_wait(&shared.fixed.full[place.stage], place.phase);
    Use::template multiply<kFull>(acc, shared.ring + place.stage * kStage + first * kChunk, at,
                                  lane, chunks - first);
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.fixed.empty[place.stage]);
    place.advance(args.stages);
  }

  // Stages for chunks [0, count), activations at shared.x.
  __device__ void stages(Sums& acc, int count) {
    typename Use::Lane at(shared, warp, lane);
#pragma unroll 1
    for (; count >= kChunksPerStage; count -= kChunksPerStage) {
      stage<true>(acc, kChunksPerStage, at);
      at.advance();
    }
    if (count > 0) stage<false>(acc, count, at);
  }

  __device__ void hand_over(const Sums& acc) {
    ptx::mbarrier_wait(&shared.fixed.sum_free[sum_place.stage], sum_place.phase ^ 1);
    float* to = shared.sums + (sum_place.stage * kConsumers + warp) * kBlockRows * kRows;
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < (kRows + 7) / 8; ++i) {
#pragma unroll
      for (int v = 0; v < 4; v += kRows == 1 ? 2 : 1) {
        const int row = g + v / 2 * 8, column = i * 8 + t * 2 + v % 2;
        const float sum = Use::result(acc, i, v);
        if (column < kRows) to[column * kBlockRows + row] = sum;
      }
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.fixed.sum_full[sum_place.stage]);
    sum_place.advance(kSums);
  }

  static __device__ bool absent(const uint4& v) {
    uint32_t most = v.x;
    for (const uint32_t pair : {v.y, v.z, v.w}) {
      most = max_u16x2(most, pair);
    }
    return most >> 16 == kNotReady || (most & 0xffff) == kNotReady;
  }

  // This warp's activations into shared memory, past L1, which may hold those of a step before.
  // Units of the same columns become operands in their place, as soon as they have been written:
  // a short loop, which was faster than unrolled code, perhaps because it runs once an operator.
  __device__ void take_x(const uint16_t* from, int bytes) {
    using Source = typename Use::Source;
    constexpr int kAtOnce = Source::kUnits > 2 ? Source::kUnits : 2;
    const uint4* const source = reinterpret_cast<const uint4*>(from);
    uint4* const raw = reinterpret_cast<uint4*>(shared.x);
    const int count = bytes / 16, units = Source::units(count);
#pragma unroll 1
    for (int unit = 0; unit < units; ++unit) {
      const int at = Source(unit, warp, lane).index();
      if (at < count) ptx::cp_async_16(raw + at, source + at);
    }
#pragma unroll 1
    for (int base = 0; base < units; base += kAtOnce) {
      uint4 v[kAtOnce];
      while (true) {
        ptx::cp_async_wait_all();
        bool again = false;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const Source s(base + i, warp, lane);
          v[i] = s.index() < count ? raw[s.index()] : uint4{0, 0, 0, 0};
          again |= s.token < args.row_count && absent(v[i]);
        }
        if (!__any_sync(0xffffffffu, again)) break;
          // All that were absent then.
#pragma unroll 1
        for (int unit = base; unit < units; ++unit) {
          const Source s(unit, warp, lane);
          const int at = s.index();
          if (at < count && absent(raw[at])) ptx::cp_async_16(raw + at, source + at);
        }
      }
      if constexpr (Use::kOperand != Operand::bf16) {
#pragma unroll
        for (int i = 0; i < kAtOnce; i += 2) {
          const Source at[2] = {{base + i, warp, lane}, {base + i + 1, warp, lane}};
          const uint4 both[2] = {v[i], v[i + 1]};
          Use::place(shared, at, both, count);
        }
      }
    }
    __syncwarp();
  }

  static __device__ void clear(Sums& acc) {
#pragma unroll
    for (auto& chain : acc) {
#pragma unroll
      for (auto& tile : chain) {
#pragma unroll
        for (auto& value : tile) value = 0;
      }
    }
  }

  // Activations in pieces, each for a group of blocks whose sums are held.
  __device__ void in_pieces(const Op& op, int chunks, int piece, const uint16_t* x) {
    const int grid = gridDim.x;
    for (int item = op.first; item < op.items; item += grid * kGroup) {
      Sums acc[kGroup];
#pragma unroll
      for (int held = 0; held < kGroup; ++held) clear(acc[held]);
      for (int begin = 0; begin < chunks; begin += piece) {
        const int end = min(begin + piece, chunks);
        __syncwarp();  // all have used the last
        take_x(x + size_t(begin) * kChunkBytes / 2, (end - begin) * kChunkBytes);
#pragma unroll
        for (int held = 0; held < kGroup; ++held) {
          if (item + held * grid >= op.items) break;
          stages(acc[held], end - begin);
        }
      }
#pragma unroll
      for (int held = 0; held < kGroup; ++held) {
        if (item + held * grid < op.items) hand_over(acc[held]);
      }
    }
  }

  // One token, full stages: while MMAs run, the next stage's words are waited for and loaded. A
  // warp's columns are the same for every block, so with kHeld, where K is so many stages, their
  // activations stay in registers.
  template <int kHeld>
  __device__ void one_token(const Op& op, int count) {
    constexpr int kKept = kHeld ? kHeld : 1;
    const typename Use::Lane first(shared, warp, lane);
    typename Use::Words words;
    typename Use::Columns columns[kKept];
    PipelineState next = place;
    const auto load_words = [&] {
      ptx::mbarrier_wait(&shared.fixed.full[next.stage], next.phase);
      Use::load(words, shared.ring + next.stage * kStage + warp * kChunk, lane);
      next.advance(args.stages);
    };
    load_words();
    typename Use::Lane at = first;
#pragma unroll
    for (auto& stage : columns) {
      Use::load(stage, at);
      at.advance();
    }
#pragma unroll 1
    for (int item = op.first; item < op.items; item += gridDim.x) {
      const bool last = item + gridDim.x >= op.items;
      Sums acc;
      clear(acc);
      const auto stage = [&](typename Use::Columns& its, bool ends) {
        typename Use::Products products;
        Use::multiply(products, words, its);
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(&shared.fixed.empty[place.stage]);
        place.advance(args.stages);
        if (!ends || !last) {
          load_words();
          if (!kHeld) {
            if (ends) at = first;
            Use::load(its, at);
            at.advance();
          }
        }
        Use::add(acc, products);
      };
      if constexpr (kHeld > 0) {
#pragma unroll
        for (int s = 0; s < kHeld; ++s) stage(columns[s], s + 1 == kHeld);
      } else {
#pragma unroll 1
        for (int s = 1; s <= count; ++s) stage(columns[0], s == count);
      }
      hand_over(acc);
    }
  }

  // All blocks, with all activations there.
  __device__ void products(const Op& op, int chunks) {
    if constexpr (Use::kSplits) {
      if (chunks == 2 * kChunksPerStage) return one_token<2>(op, 2);
      if (chunks % kChunksPerStage == 0) return one_token<0>(op, chunks / kChunksPerStage);
    }
    for (int item = op.first; item < op.items; item += gridDim.x) {
      Sums acc;
      clear(acc);
      stages(acc, chunks);
      hand_over(acc);
    }
  }

  __device__ void matrix(const Op& op) {
    const Tiles& tiles = tiles_of(args, op.kind);
    const int piece = piece_chunks<kFormat, kRows>(args, tiles.chunks);
    const uint16_t* x = activations_of(args, op.kind);
    // They were made absent three operators ago, or before.
    wait_met(shared.fixed, max(0, op.index - 2), lane);
    if (kRows > 1 && piece < tiles.chunks) {  // one row's always fit
      in_pieces(op, tiles.chunks, piece, x);
    } else {
      take_x(x, tiles.chunks * kChunkBytes);
      if (warp == 0 && lane == 0) stamp(args, op, 0);
      products(op, tiles.chunks);
    }
    if (warp == 0 && lane == 0) stamp(args, op, 1);
  }

  // Cosines and sines of this step's positions.
  __device__ void rotations(int step) {
    const int half = args.head_dim / 2;
    for (int i = threadIdx.x; i < args.row_count * half; i += kThreadsHere) {
      const int row = i / half;
      const RowContext& at = shared.fixed.rows[row];
      const float angle =
          static_cast<float>(at.past + step + row - at.first) * args.rope_frequency[i % half];
      float sine, cosine;
      sincosf(angle, &sine, &cosine);
      shared.rotation[i] = {cosine * args.rope_magnitude, sine * args.rope_magnitude};
    }
    ptx::bar_sync<1>(kThreadsHere);
  }

  __device__ void run() {
    for_each_op(args, [&](const Op& op) {
      if (op.kind == Kind::embed) {
        rotations(op.step);
        return;
      }
      if (op.first >= op.items) return;
      if (op.kind != Kind::attention) {
        matrix(op);
        return;
      }
      attention<kRows>(args, shared, op, kStage, warp, lane, place);
      if (warp == 0 && lane == 0) {
        stamp(args, op, 1);
        ptx::mbarrier_arrive(&shared.fixed.attention_done);
      }
    });
  }
};

}  // namespace ridge::cuda
#endif
