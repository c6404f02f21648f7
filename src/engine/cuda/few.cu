#include "engine/cuda/few.cuh"

#include <algorithm>

#include "engine/cuda/mma.cuh"
#include "engine/cuda/scalar.cuh"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kDepth = 8;  // chunks that a warp has asked for: 4 KB
// A warp's part of K has at least so many chunks, or too few bytes are under way.
constexpr int kLeastChunks = 6;
// Blocks of an SM: registers are what bounds them, 32 of them chunks under way.
constexpr int blocks_of(int groups) { return groups > 1 ? 2 : 3; }

// Weights are read once; volatile, so that they are asked for where the code says so.
__device__ inline uint4 read_once(const uint8_t* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ inline uint32_t read_scale(const uint8_t* from) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

template <WeightFormat kFormat>
struct Asked {
  static constexpr int kScales = has_group_scale(kFormat) ? kDepth : 1;
  uint4 words[kDepth];
  uint32_t scales[kScales];

  // Chunk j of `there` from `from` on.
  __device__ void ask(int j, const uint8_t* from, int there, int lane) {
    constexpr int kBytes = format_info(kFormat).chunk_bytes;
    if (j >= there) return;
    words[j] = read_once(from + j * kBytes + lane * 16);
    if (has_group_scale(kFormat)) scales[j] = read_scale(from + j * kBytes + 512 + lane / 4 * 4);
  }
  __device__ __half2 scale(int j) const {
    return *reinterpret_cast<const __half2*>(&scales[has_group_scale(kFormat) ? j : 0]);
  }
};

// kGroups: of 8 tokens.
template <WeightFormat kFormat, int kGroups>
__global__ void __launch_bounds__(kThreads, blocks_of(kGroups))
    few_kernel(const __grid_constant__ FewArgs a) {
  constexpr int kColumns = format_info(kFormat).columns;
  constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  __shared__ float4 parts[2][kWarps][kGroups][32];
  __shared__ uint16_t expert_of[kFewChoices];          // [tile]
  __shared__ int8_t token_of[kFewChoices * kFewTile];  // [slot]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int teams = kWarps / a.ways, team = warp / a.ways, part = warp % a.ways;
  constexpr int kStep = 64 / kColumns;  // chunks of 64 columns, which parts are multiples of
  const int chunks = a.tiles.chunks, per = (chunks + a.ways * kStep - 1) / (a.ways * kStep) * kStep;
  const int first = part * per, mine = min(per, chunks - first);
  const bool grouped = a.tile_count != nullptr;

  if (a.gathers) after_previous();
  let_next_begin();  // from here on the lists are old
  int tiles = 1;
  if (grouped) {  // past L1, which may hold an earlier layer's
    tiles = __ldcg(a.tile_count);
    for (int i = threadIdx.x; i < tiles; i += kThreads) expert_of[i] = __ldcg(a.tile_matrix + i);
    for (int i = threadIdx.x; i < tiles * kFewTile; i += kThreads) {
      token_of[i] = __ldcg(a.source + i);
    }
    __syncthreads();
  }

  // Units are blocks of rows, tile after tile.
  struct Unit {
    int tile, block;
  };
  const int blocks = a.tiles.blocks, stride = gridDim.x * teams, begin = blockIdx.x * teams;
  const Unit step = {stride / blocks, stride % blocks};
  const auto after = [&](Unit u) {
    u.tile += step.tile, u.block += step.block;
    if (u.block >= blocks) u.block -= blocks, ++u.tile;
    return u;
  };
  const auto matrix_of = [&](int tile) { return a.matrix + (grouped ? expert_of[tile] : 0); };

  Asked<kFormat> asked = {};
  const uint8_t* from = nullptr;  // what is asked for next
  int there = 0;
  const auto aim = [&](Unit u) {
    there = u.tile < tiles ? mine : 0;
    if (there <= 0) return;
    from = a.tiles.data + a.tiles.stride * matrix_of(u.tile) +
           (size_t(u.block) * chunks + first) * kChunkBytes;
  };
  Unit unit = {(begin + team) / blocks, (begin + team) % blocks};
  aim(unit);
#pragma unroll
  for (int j = 0; j < kDepth; ++j) asked.ask(j, from, there, lane);
  after_previous();

  int turn = 0;
  for (int base = begin; base < tiles * blocks; base += stride, turn ^= 1) {
    const auto [tile, block] = unit;
    unit = after(unit);
    const bool real = tile < tiles;
    // A lane's column of the MMAs: a token or slot; where there is none, another's.
    int column = kGroups > 1 ? lane / 4 : min(lane / 4, a.tokens - 1);
    if (grouped && real) {
      const int slot = tile * kFewTile + (token_of[tile * kFewTile + lane / 4] < 0 ? 0 : lane / 4);
      column = a.gathers ? token_of[slot] : slot;
    }
    const int apart = a.x_padded * 64;  // from 64 columns to the next
    const uint16_t* x = a.x + wide_at(first * kColumns, column, a.x_padded) + lane % 4 * 2;
    float scale[2] = {1, 1};
    const int row = block * kBlockRows + lane / 4;
    if (has_row_scale(kFormat) && part == 0 && real) {
      const float* its = a.tiles.row_scale + size_t(matrix_of(tile)) * blocks * kBlockRows + row;
      scale[0] = its[0], scale[1] = its[8];
    }
    float d[kGroups][4] = {};
#pragma unroll 1
    for (int now = real ? mine : 0; now > 0; now -= kDepth) {
      from += kDepth * kChunkBytes, there -= kDepth;
      if (now <= kDepth) aim(unit);
#pragma unroll
      for (int j = 0; j < kDepth; ++j) {
        if (j < now) {
          uint32_t w[kColumns / 16][4];
          unpack_chunk<kFormat>(asked.words[j], asked.scale(j), w);
          const uint16_t* at = x + j / kStep * apart + j % kStep * kColumns * 8;
#pragma unroll
          for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
              const uint16_t* b = at + s * 128 + g * 512;
              mma(d[g], w[s][0], w[s][1], w[s][2], w[s][3],
                  uint2{*reinterpret_cast<const uint32_t*>(b),
                        *reinterpret_cast<const uint32_t*>(b + 64)});
            }
          }
        }
        asked.ask(j, from, there, lane);
      }
      x += kDepth / kStep * apart;
    }

    if (a.ways > 1) {
      if (part > 0) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          parts[turn][warp][g][lane] = {d[g][0], d[g][1], d[g][2], d[g][3]};
        }
      }
      __syncthreads();  // one a turn: the other half of `parts` is free when all are here
      if (part > 0) continue;
      for (int p = 1; p < a.ways; ++p) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const float4 other = parts[turn][warp + p][g][lane];
          d[g][0] += other.x, d[g][1] += other.y, d[g][2] += other.z, d[g][3] += other.w;
        }
      }
    }
    if (!real) continue;
    const auto used = [&](int slot) { return grouped ? token_of[slot] >= 0 : slot < a.tokens; };
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int slot = grouped ? tile * kFewTile : g * 8;
      if (a.after == After::gate) {
        uint32_t pair = pack_bf16(gated(a.gate, d[g][0] * scale[0]) * d[g][2] * scale[1],
                                  gated(a.gate, d[g][1] * scale[0]) * d[g][3] * scale[1]);
        // A row of 8 tokens becomes a token's 8 rows.
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
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
        if (a.after == After::add) y += *to;
        if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
        *to = y;
      }
    }
  }
}

template <WeightFormat kFormat, int kGroups>
void launch(cudaStream_t stream, int sms, const FewArgs& args) {
  const int teams = kWarps / args.ways;
  const int tiles = args.tile_count ? args.padded / kFewTile : 1;  // at most
  const int turns = (tiles * args.tiles.blocks + teams - 1) / teams;
  launch_dependent(few_kernel<kFormat, kGroups>, dim3(std::min(turns, sms * blocks_of(kGroups))),
                   kThreads, 0, stream, args);
}

template <WeightFormat kFormat>
void launch_format(cudaStream_t stream, int sms, const FewArgs& args) {
  if (args.tile_count || args.tokens <= 8) return launch<kFormat, 1>(stream, sms, args);
  if (args.tokens <= 16) return launch<kFormat, 2>(stream, sms, args);
  launch<kFormat, 4>(stream, sms, args);
}

}  // namespace

void multiply_few(cudaStream_t stream, WeightFormat format, int sms, FewArgs args) {
  args.ways = kWarps;
  while (args.ways > 1 && args.tiles.chunks < args.ways * kLeastChunks) args.ways /= 2;
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
