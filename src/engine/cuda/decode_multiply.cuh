// The decode kernel's multiplying warps: chunk c of a stage belongs to warp c mod 16, which adds up
// its share of K for a block of 16 rows; the finishing warp sums the shares.
#pragma once

#include "engine/cuda/decode_attention.cuh"
#include "engine/cuda/decode_shared.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

template <WeightFormat kFormat, int kRows>
struct Multiplier {
  const DecodeArgs& args;
  Shared& shared;
  int warp, lane;
  Place place;      // in the ring
  Place sum_place;  // among the partial sums

  static constexpr int kTiles = (kRows + 7) / 8;
  static constexpr int kStage = stage_bytes(kFormat);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;
  static constexpr int kSteps = format_info(kFormat).columns / 16;  // of K in a chunk
  static constexpr int kChunksPerWarp = kChunksPerStage / kConsumers;
  static constexpr int kChunkBytes = kSteps * kRows * 32;  // of activations
  // Sums that do not wait for each other; int4 has them for each chunk before it scales.
  static constexpr int kChains = kFormat == WeightFormat::int4 ? 1 : kChunksPerWarp;

  // acc += the ring's next stage, of `chunks`, x its activations, whose first lie at x. With kFull
  // all addresses are constants apart from two: a warp passes through every stage, so what it does
  // besides loading and multiplying adds up.
  template <bool kFull>
  __device__ void stage(float (&acc)[kChains][kTiles][4], int chunks, const uint2* x,
                        const float* sums) {
    wait(&shared.fixed.full[place.slot], place.parity);
    const uint8_t* from = shared.ring + place.slot * kStage + warp * kChunk;
    uint4 a[kChunksPerWarp];
    __half2 scale[kChunksPerWarp];
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const uint8_t* chunk = from + u * kConsumers * kChunk;
      const bool there = kFull || warp + u * kConsumers < chunks;
      a[u] = there ? *reinterpret_cast<const uint4*>(chunk + lane * 16) : uint4{0, 0, 0, 0};
      scale[u] = __half2{};
      if (kFormat == WeightFormat::int4 && there) {
        scale[u] = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
      }
    }
    uint2 b[kChunksPerWarp][kSteps][kTiles];
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const bool there = kFull || warp + u * kConsumers < chunks;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          b[u][k][i] = there ? x[(u * kConsumers * kSteps + k) * kRows * 4 + i * 32] : uint2{0, 0};
        }
      }
    }
    float2 offset[kChunksPerWarp][kTiles] = {};
    if (kFormat == WeightFormat::int4) {
#pragma unroll
      for (int u = 0; u < kChunksPerWarp; ++u) {
        const bool there = kFull || warp + u * kConsumers < chunks;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const float* from_here = sums + u * kConsumers * kRows + i * 8;
          if (!there) continue;
          if (kRows == 1) {
            offset[u][i].x = *from_here;
          } else {
            offset[u][i] = *reinterpret_cast<const float2*>(from_here);
          }
        }
      }
    }
    multiply_chunks<kFormat>(acc, a, b, scale, offset);
    __syncwarp();
    if (lane == 0) arrive(&shared.fixed.empty[place.slot]);
    place.advance(args.ring_slots);
  }

  // Stages for chunks [0, count), activations at shared.x.
  __device__ void stages(float (&acc)[kChains][kTiles][4], int count) {
    // 8 bytes for each of a step's 4 x kRows lanes. Columns beyond the tokens repeat them: their
    // results are not used.
    const uint2* x = reinterpret_cast<const uint2*>(shared.x) + warp * kSteps * kRows * 4 +
                     (kRows >= 8 ? lane : lane % (kRows * 4));
    const float* sums = shared.x_sums + warp * kRows + (kRows == 1 ? 0 : lane % 4 * 2 % kRows);
#pragma unroll 1
    for (; count >= kChunksPerStage; count -= kChunksPerStage) {
      stage<true>(acc, kChunksPerStage, x, sums);
      x += kChunksPerStage * kSteps * kRows * 4;
      sums += kChunksPerStage * kRows;
    }
    if (count > 0) stage<false>(acc, count, x, sums);
  }

  __device__ void hand_over(const float (&acc)[kChains][kTiles][4]) {
    wait(&shared.fixed.sum_free[sum_place.slot], sum_place.parity ^ 1);
    float* to = shared.sums + (sum_place.slot * kConsumers + warp) * kBlockRows * kRows;
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int row = g + v / 2 * 8, column = i * 8 + t * 2 + v % 2;
        float sum = acc[0][i][v];
#pragma unroll
        for (int chain = 1; chain < kChains; ++chain) sum += acc[chain][i][v];
        if (column < kRows) to[column * kBlockRows + row] = sum;
      }
    }
    __syncwarp();
    if (lane == 0) arrive(&shared.fixed.sum_full[sum_place.slot]);
    sum_place.advance(kSums);
  }

  // Activations into shared memory: past L1, which may hold those of a step before.
  __device__ void take_x(const uint8_t* from, int bytes) {
    const uint4* source = reinterpret_cast<const uint4*>(from);
    uint4* to = reinterpret_cast<uint4*>(shared.x);
    constexpr int kAtOnce = 4;
    for (int base = threadIdx.x; base < bytes / 16; base += kAtOnce * kConsumers * 32) {
      uint4 v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = base + i * kConsumers * 32;
        if (at < bytes / 16) v[i] = __ldcg(source + at);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = base + i * kConsumers * 32;
        if (at < bytes / 16) to[at] = v[i];
      }
    }
    meet<1>(kConsumers * 32);
    if (kFormat == WeightFormat::int4) sum_x(bytes / kChunkBytes);
  }

  // Four lanes, one for each 16 columns, add up a chunk of one token.
  __device__ void sum_x(int chunks) {
    const int all = chunks * kRows * 4;
    for (int base = 0; base < all; base += kConsumers * 32) {
      const int i = base + threadIdx.x, k = i % 4, n = i / 4 % kRows, c = i / 4 / kRows;
      float sum = 0;
      if (i < all) {
        const uint4* from =
            reinterpret_cast<const uint4*>(shared.x) + ((c * 4 + k) * kRows + n) * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 v = from[half];
          for (const uint32_t pair : {v.x, v.y, v.z, v.w}) {
            sum += __uint_as_float(pair << 16) + __uint_as_float(pair & 0xffff0000u);
          }
        }
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (i < all && k == 0) shared.x_sums[c * kRows + n] = kInt4Offset * sum;
    }
    meet<1>(kConsumers * 32);
  }

  using Sums = float[kChains][kTiles][4];

  static __device__ void clear(Sums& acc) {
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int v = 0; v < 4; ++v) acc[chain][i][v] = 0;
      }
    }
  }

  // Activations in pieces, each for a group of blocks whose sums are held.
  __device__ void in_pieces(const Op& op, int chunks, int piece, const uint8_t* x) {
    const int grid = gridDim.x;
    for (int item = op.first; item < op.items; item += grid * kGroup) {
      Sums acc[kGroup];
#pragma unroll
      for (int held = 0; held < kGroup; ++held) clear(acc[held]);
      for (int begin = 0; begin < chunks; begin += piece) {
        const int end = min(begin + piece, chunks);
        meet<1>(kConsumers * 32);  // all have used the last
        take_x(x + size_t(begin) * kChunkBytes, (end - begin) * kChunkBytes);
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

  __device__ void matrix(const Op& op) {
    const Tiles& tiles = tiles_of(args, op.kind);
    const int piece = piece_chunks<kFormat, kRows>(args, tiles.chunks);
    const uint8_t* x = reinterpret_cast<const uint8_t*>(op.kind == Kind::out    ? args.attended
                                                        : op.kind == Kind::down ? args.activated
                                                                                : args.normed);
    wait_met(shared.fixed, op.index, lane);
    if (kRows > 1 && piece < tiles.chunks) {  // one row's always fit
      in_pieces(op, tiles.chunks, piece, x);
    } else {
      take_x(x, tiles.chunks * kChunkBytes);
      if (warp == 0 && lane == 0) stamp(args, op, 0);
      for (int item = op.first; item < op.items; item += gridDim.x) {
        Sums acc;
        clear(acc);
        stages(acc, tiles.chunks);
        hand_over(acc);
      }
    }
    if (warp == 0 && lane == 0) stamp(args, op, 1);
  }

  // Cosines and sines of this step's positions.
  __device__ void rotations(int step) {
    const int half = args.head_dim / 2;
    for (int i = threadIdx.x; i < args.row_count * half; i += kConsumers * 32) {
      const int row = i / half;
      const Row& at = shared.fixed.rows[row];
      const float angle =
          static_cast<float>(at.past + step + row - at.first) * args.rope_frequency[i % half];
      float sine, cosine;
      sincosf(angle, &sine, &cosine);
      shared.rotation[i] = {cosine * args.rope_magnitude, sine * args.rope_magnitude};
    }
    meet<1>(kConsumers * 32);
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
      attention<kRows, kFormat>(args, shared, op, kStage, warp, lane, place);
      if (warp == 0 && lane == 0) {
        stamp(args, op, 1);
        arrive(&shared.fixed.attention_done);
      }
    });
  }
};

}  // namespace ridge::cuda
#endif
