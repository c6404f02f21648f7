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
  Place place;            // in the ring
  uint32_t x_parity = 0;  // of the next activations
  Place sum_place;        // among the partial sums
  uint32_t go_parity = 0;

  static constexpr int kTiles = (kRows + 7) / 8;
  static constexpr int kStage = stage_bytes(kFormat);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;
  static constexpr int kSteps = format_info(kFormat).columns / 16;  // of K in a chunk
  static constexpr int kChunksPerWarp = kChunksPerStage / kConsumers;
  static constexpr int kHeld = kRows == 1 ? 1 : kGroup;  // one row always fits whole

  // `chunks` of this stage, whose first has activations at x.
  __device__ void stage(float (&acc)[kTiles][4], const uint8_t* from, int chunks,
                        const uint8_t* x) {
    uint4 a[kChunksPerWarp];
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const int c = warp + u * kConsumers;
      if (c < chunks) a[u] = *reinterpret_cast<const uint4*>(from + c * kChunk + lane * 16);
    }
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const int c = warp + u * kConsumers;
      if (c >= chunks) break;
      multiply_chunk<kFormat>(acc, a[u], from + c * kChunk, lane, [&](int k, int tile) {
        // 8 bytes for each of the step's 4 x kRows lanes; the others' columns are no tokens.
        const int at = (c * kSteps + k) * kRows * 4 + tile * 32 + lane;
        uint2 b = {0, 0};
        if (kRows >= 8 || lane < kRows * 4) b = reinterpret_cast<const uint2*>(x)[at];
        return b;
      });
    }
  }

  __device__ void hand_over(const float (&acc)[kTiles][4]) {
    wait(&shared.fixed.sum_free[sum_place.slot], sum_place.parity ^ 1);
    float* to = shared.sums + (sum_place.slot * kConsumers + warp) * kBlockRows * kRows;
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int row = g + v / 2 * 8, column = i * 8 + t * 2 + v % 2;
        if (column < kRows) to[column * kBlockRows + row] = acc[i][v];
      }
    }
    __syncwarp();
    if (lane == 0) arrive(&shared.fixed.sum_full[sum_place.slot]);
    sum_place.advance(kSums);
  }

  __device__ void matrix(const Op& op) {
    const Tiles& tiles = tiles_of(args, op.kind);
    const int piece = piece_chunks<kFormat, kRows>(args, tiles.chunks);
    const bool pieces = piece < tiles.chunks;
    const int grid = gridDim.x, group = pieces ? kGroup : 1;
    for (int item = op.first; item < op.items; item += grid * group) {
      float acc[kHeld][kTiles][4] = {};
      for (int begin = 0; begin < tiles.chunks; begin += piece) {
        const int end = min(begin + piece, tiles.chunks);
        if (pieces || item == op.first) {
          wait(&shared.fixed.x_full, x_parity);
          x_parity ^= 1;
          if (warp == 0 && lane == 0 && begin == 0 && item == op.first) stamp(args, op, 0);
        }
#pragma unroll
        for (int held = 0; held < kHeld; ++held) {
          if (held >= group || item + held * grid >= op.items) break;
          for (int c = begin; c < end; c += kChunksPerStage) {
            wait(&shared.fixed.full[place.slot], place.parity);
            stage(acc[held], shared.ring + place.slot * kStage, min(kChunksPerStage, end - c),
                  shared.x + (c - begin) * kSteps * kRows * 32);
            __syncwarp();
            if (lane == 0) arrive(&shared.fixed.empty[place.slot]);
            place.advance(args.ring_slots);
          }
        }
        if (pieces) {
          __syncwarp();
          if (lane == 0) arrive(&shared.fixed.x_free);
        }
      }
#pragma unroll
      for (int held = 0; held < kHeld; ++held) {
        if (held >= group || item + held * grid >= op.items) break;
        hand_over(acc[held]);
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
      wait(&shared.fixed.attention_go, go_parity);
      go_parity ^= 1;
      if (warp == 0 && lane == 0) stamp(args, op, 0);
      attention<kRows>(args, shared, op, kStage, warp, lane, place);
      if (warp == 0 && lane == 0) {
        stamp(args, op, 1);
        arrive(&shared.fixed.attention_done);
      }
    });
  }
};

}  // namespace ridge::cuda
#endif
