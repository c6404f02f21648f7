#include <algorithm>

#include "base/ptx/mma.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/ptx/pipeline.cuh"
#include "engine/cuda/scalar.cuh"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kDepth = 8;   // chunks of a copy
constexpr int kBlocks = 2;  // of an SM
// Chunks whose tokens a lane holds in registers: where a part of K has no more, a tile's tokens are
// loaded once.
__host__ __device__ constexpr int held_chunks(WeightFormat format, int groups) {
  const int held = (groups > 1 ? 32 : 64) / (format_info(format).columns / 8 * groups);
  return held < 16 ? held : 16;
}

// fp8 as its bits lie, times 2^-120: tokens have half of that back, results the rest.
template <WeightFormat kFormat>
__device__ inline void unpack_bits(const uint4& words, __half2 scale,
                                   uint32_t (&a)[format_info(kFormat).columns / 16][4]) {
  if constexpr (kFormat == WeightFormat::fp8) {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      a[k / 2][k % 2 * 2] = fp8_bits<0>(word[k]), a[k / 2][k % 2 * 2 + 1] = fp8_bits<1>(word[k]);
    }
  } else {
    dequantize_chunk<kFormat>(words, scale, a);
  }
}
template <WeightFormat kFormat>
__device__ inline uint32_t load_pair(const uint16_t* x) {
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(x);
  if (kFormat != WeightFormat::fp8) return pair;
  return bits_of(__hmul2(pair_of(pair), pair_of(0x5d805d80u)));  // 2^60
}

template <WeightFormat kFormat, int kGroups>
struct FewShared {
  static constexpr int kSlots = kGroups > 1 ? 2 : 3;  // what two blocks have room for
  // Chunks, and for a unit's first of them the scales of its rows: by themselves those would wait
  // behind all copies under way.
  static constexpr int kScaleBytes = has_row_scale(kFormat) ? kBlockRows * 4 : 0;
  static constexpr int kChunks = kDepth * format_info(kFormat).chunk_bytes;
  uint8_t ring[kWarps][kSlots][kChunks + kScaleBytes];
  float4 parts[2][kWarps - 1][kGroups][32];  // sums of other parts of K, for every other turn
  uint64_t full[kWarps][kSlots];
  uint16_t expert_of[kSkinnyMaxTiles];             // [tile]
  int8_t token_of[kSkinnyMaxTiles * kSkinnyTile];  // [slot]
};

#ifdef RIDGE_HOPPER
// A block of rows of a tile of tokens.
struct Unit {
  int tile, block;
  __device__ void advance(int by, int blocks) {
    for (block += by; block >= blocks; block -= blocks) ++tile;
  }
};
#endif

// kGroups: of 8 tokens. A block of the grid takes a run of units. A warp has its own ring, which it
// fills itself.
template <WeightFormat kFormat, int kGroups>
__global__ void __launch_bounds__(kThreads, kBlocks)
    few_kernel(const __grid_constant__ SkinnyGemmArgs a) {
#ifdef RIDGE_HOPPER
  using Shared = FewShared<kFormat, kGroups>;
  constexpr int kColumns = format_info(kFormat).columns;
  constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  constexpr int kStep = 64 / kColumns;  // chunks of 64 columns, which parts of K are multiples of
  constexpr int kHeld = held_chunks(kFormat, kGroups);
  constexpr int kAtOnce = kHeld < kDepth ? kHeld : kDepth;  // whose tokens are loaded at a time
  constexpr int kTurn = kHeld < kDepth ? kDepth : kHeld;
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_groups = kWarps / a.split_k, team = warp / a.split_k, part = warp % a.split_k;
  const int chunks = a.tiles.chunks, blocks = a.tiles.blocks;
  const int per = (chunks + a.split_k * kStep - 1) / (a.split_k * kStep) * kStep;
  const int first = part * per, mine = min(per, chunks - first);
  const bool grouped = a.tile_count != nullptr;
  if (lane == 0) {
    for (uint64_t& barrier : shared.full[warp]) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async_shared();
  }
  __syncwarp();

  if (a.gathers) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();  // from here on the lists are old
  int tiles = 1;
  if (grouped) {  // past L1, which may hold an earlier layer's
    tiles = __ldcg(a.tile_count);
    const int most = a.padded / kSkinnyTile;  // not to wait for the count
    for (int i = threadIdx.x; i < most; i += kThreads) {
      shared.expert_of[i] = __ldcg(a.tile_matrix + i);
    }
    for (int i = threadIdx.x; i < most * kSkinnyTile; i += kThreads) {
      shared.token_of[i] = __ldcg(a.source + i);
    }
    __syncthreads();
  }
  const auto matrix_of = [&](int tile) {
    return a.matrix + (grouped ? shared.expert_of[tile] : 0);
  };

  const int begin = tiles * blocks * blockIdx.x / gridDim.x;
  const int end = tiles * blocks * (blockIdx.x + 1) / gridDim.x;
  Unit unit = {begin / blocks, begin % blocks};
  unit.advance(team, blocks);
  // What is asked for next: chunks of a unit, which is this far from the beginning.
  Unit asked = unit;
  int ahead = team, left = 0;
  const uint8_t *from = nullptr, *of_unit = nullptr;
  const float* scale_from = nullptr;
  const size_t apart_bytes = size_t(chunks) * kChunkBytes;  // from block to block
  const auto aim = [&] {
    if (begin + ahead >= end) return;
    const size_t matrix = matrix_of(asked.tile);
    of_unit =
        a.tiles.data + a.tiles.stride * matrix + asked.block * apart_bytes + first * kChunkBytes;
    scale_from = a.tiles.row_scale + (matrix * blocks + asked.block) * kBlockRows;
    from = of_unit, left = mine;
  };
  const uint64_t once = ptx::createpolicy_evict_first();
  const auto ask = [&](int slot) {
    if (left <= 0) return;
    const int bytes = min(left, kDepth) * kChunkBytes;
    const bool scaled = has_row_scale(kFormat) && part == 0 && left == mine;
    if (lane == 0) {
      uint8_t* to = shared.ring[warp][slot];
      uint64_t* full = &shared.full[warp][slot];
      ptx::mbarrier_arrive_expect_tx(full, bytes + (scaled ? Shared::kScaleBytes : 0));
      ptx::cp_async_bulk(to, from, bytes, full, once);
      if (scaled)
        ptx::cp_async_bulk(to + Shared::kChunks, scale_from, Shared::kScaleBytes, full, once);
    }
    from += bytes, left -= kDepth;
    if (left > 0) return;
    asked.block += warp_groups, ahead += warp_groups;
    if (asked.block < blocks && begin + ahead < end) {
      of_unit += warp_groups * apart_bytes, scale_from += warp_groups * kBlockRows;
      from = of_unit, left = mine;
    } else {
      asked.advance(0, blocks);
      aim();
    }
  };
  aim();
  for (int slot = 0; slot < Shared::kSlots; ++slot) ask(slot);
  ptx::griddepcontrol_wait();

  PipelineState place;
  int turn = 0, held = -1;  // the tile whose tokens are in b
  uint2 b[kHeld][kColumns / 16][kGroups];
  for (int base = begin; base < end; base += warp_groups, turn ^= 1) {
    const auto [tile, block] = unit;
    const bool real = base + team < end;
    unit.advance(warp_groups, blocks);
    const int apart = a.x_padded * 64;  // from 64 columns to the next
    const uint16_t* x = nullptr;
    if (tile != held && real) {
      // A lane's column of the MMAs: a token or slot; where there is none, another's.
      int column = kGroups > 1 ? lane / 4 : min(lane / 4, a.tokens - 1);
      if (grouped) {
        const int its = shared.token_of[tile * kSkinnyTile + lane / 4] < 0 ? 0 : lane / 4;
        const int slot = tile * kSkinnyTile + its;
        column = a.gathers ? shared.token_of[slot] : slot;
      }
      x = a.x + wide_at(first * kColumns, column, a.x_padded) + lane % 4 * 2;
    }
    float d[kGroups][4] = {}, scale[2] = {1, 1};
#pragma unroll 1
    for (int now = real ? mine : 0; now > 0; now -= kTurn) {
#pragma unroll
      for (int from_j = 0; from_j < kTurn; from_j += kAtOnce) {
        if (from_j >= now) break;
        if (tile != held) {
#pragma unroll
          for (int j = from_j; j < from_j + kAtOnce; ++j) {
            const uint16_t* at = x + j / kStep * apart + j % kStep * kColumns * 8;
#pragma unroll
            for (int s = 0; s < kColumns / 16 && j < now; ++s) {
#pragma unroll
              for (int g = 0; g < kGroups; ++g) {
                const uint16_t* pair = at + s * 128 + g * 512;
                b[j % kHeld][s][g] = {load_pair<kFormat>(pair), load_pair<kFormat>(pair + 64)};
              }
            }
          }
        }
        const uint8_t* slot = shared.ring[warp][place.stage];
        if (from_j % kDepth == 0) ptx::mbarrier_wait(&shared.full[warp][place.stage], place.phase);
        if (has_row_scale(kFormat) && part == 0 && from_j == 0 && now == mine) {
          const float* scales = reinterpret_cast<const float*>(slot + Shared::kChunks);
          constexpr float kBack = kFormat == WeightFormat::fp8 ? 0x1p60f : 1;
          scale[0] = scales[lane / 4] * kBack, scale[1] = scales[lane / 4 + 8] * kBack;
        }
#pragma unroll
        for (int j = from_j; j < from_j + kAtOnce; ++j) {
          if (j >= now) break;
          const uint8_t* chunk = slot + j % kDepth * kChunkBytes;
          __half2 scales = {};
          if (has_group_scale(kFormat)) {
            scales = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
          }
          uint32_t w[kColumns / 16][4];
          unpack_bits<kFormat>(*reinterpret_cast<const uint4*>(chunk + lane * 16), scales, w);
#pragma unroll
          for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
              const uint2& x = b[j % kHeld][s][g];
              ptx::mma_bf16(d[g], w[s], x.x, x.y);
            }
          }
        }
        if ((from_j + kAtOnce) % kDepth == 0 || from_j + kAtOnce >= now) {
          __syncwarp();  // all have read the slot
          ask(place.stage);
          place.advance(Shared::kSlots);
        }
      }
      x += kTurn / kStep * apart;
    }
    if (mine <= kHeld) held = tile;

    if (a.split_k > 1) {
      if (part > 0) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          shared.parts[turn][warp - 1][g][lane] = {d[g][0], d[g][1], d[g][2], d[g][3]};
        }
      }
      __syncthreads();  // one a turn: who is here has read the turn before's
      if (part > 0) continue;
#pragma unroll
      for (int p = 1; p < kWarps; ++p) {
        if (p >= a.split_k) break;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const float4 other = shared.parts[turn][warp - 1 + p][g][lane];
          d[g][0] += other.x, d[g][1] += other.y, d[g][2] += other.z, d[g][3] += other.w;
        }
      }
    }
    if (!real) continue;
    const int row = block * kBlockRows + lane / 4;
    const auto used = [&](int slot) {
      return grouped ? shared.token_of[slot] >= 0 : slot < a.tokens;
    };
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int slot = grouped ? tile * kSkinnyTile : g * 8;
      if (a.epilogue == Epilogue::gate) {
        uint32_t pair = pack_bf16(activate(a.activation, d[g][0] * scale[0]) * d[g][2] * scale[1],
                                  activate(a.activation, d[g][1] * scale[0]) * d[g][3] * scale[1]);
        // A row of 8 tokens becomes a token's 8 rows.
        ptx::movmatrix_trans(pair);
        uint16_t* to = a.out + wide_at(block * 8 + lane % 4 * 2, slot + lane / 4, a.padded);
        if (used(slot + lane / 4)) *reinterpret_cast<uint32_t*>(to) = pair;
        continue;
      }
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int its_slot = slot + lane % 4 * 2 + v % 2, its_row = row + v / 2 * 8;
        if (!used(its_slot) || its_row >= a.row_count) continue;
        float* to = a.rows + size_t(its_slot) * a.stride + its_row;
        float y = d[g][v] * scale[v / 2];
        if (a.bias) y += a.bias[its_row];
        if (a.epilogue == Epilogue::add) y += *to;
        if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
        *to = y;
      }
    }
  }
#endif
}

template <WeightFormat kFormat, int kGroups>
void launch(cudaStream_t stream, int sms, const SkinnyGemmArgs& args) {
  const int warp_groups = kWarps / args.split_k;
  const int tiles = args.tile_count ? args.padded / kSkinnyTile : 1;  // at most
  const int turns = (tiles * args.tiles.blocks + warp_groups - 1) / warp_groups;
  constexpr int kShared = sizeof(FewShared<kFormat, kGroups>);
  static const bool ready = [] {
    check(cudaFuncSetAttribute(few_kernel<kFormat, kGroups>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
          "asking for shared memory");
    return true;
  }();
  static_cast<void>(ready);
  launch_dependent(few_kernel<kFormat, kGroups>, dim3(std::min(turns, sms * kBlocks)), kThreads,
                   kShared, stream, args);
}

template <WeightFormat kFormat>
void launch_format(cudaStream_t stream, int sms, const SkinnyGemmArgs& args) {
  if (args.tile_count || args.tokens <= 8) return launch<kFormat, 1>(stream, sms, args);
  if (kFormat != WeightFormat::bf16 || args.tokens <= 16) {
    return launch<kFormat, 2>(stream, sms, args);
  }
  if constexpr (kFormat == WeightFormat::bf16) launch<kFormat, 4>(stream, sms, args);
}

}  // namespace

void skinny_gemm(cudaStream_t stream, WeightFormat format, int sms, SkinnyGemmArgs args) {
  // As many parts as there are warps, but for short K: then as few as can be held.
  args.split_k = kWarps;
  const int chunks = args.tiles.chunks;
  while (args.split_k > 1 && chunks < args.split_k * kDepth &&
         2 * chunks <= args.split_k * held_chunks(format, 1)) {
    args.split_k /= 2;
  }
  if (!args.gathers) args.x_padded = args.padded;
  switch (format) {
    case WeightFormat::bf16:
      return launch_format<WeightFormat::bf16>(stream, sms, args);
    case WeightFormat::fp8:
      return launch_format<WeightFormat::fp8>(stream, sms, args);
    case WeightFormat::int8:
      return launch_format<WeightFormat::int8>(stream, sms, args);
    case WeightFormat::int4:
      return launch_format<WeightFormat::int4>(stream, sms, args);
    case WeightFormat::nf4:
      return launch_format<WeightFormat::nf4>(stream, sms, args);
  }
}

}  // namespace ridge::cuda
