// A warp holds two blocks of 16 rows x 128 bytes in registers. The tokens' inputs lie in shared
// memory:
//
//   words[token][32 + 4]    128 bytes of a token, padded so that the lanes' loads meet 32 banks
//
// A step of an mma takes 32 bytes of its operands, for bf16 (16 inputs) and int8 (32 inputs) alike.
// Lane l holds, of rows l/4 and l/4 + 8 and of token l/4, the words l%4 and l%4 + 4.
#include "base/ptx/mbarrier.cuh"
#include "base/ptx/mma.cuh"
#include "lab/cuda/kernels.cuh"
#include "lab/cuda/mma_tiles.h"

namespace ridge {
namespace {

constexpr int kWarpRows = 32, kWords = 32, kPitch = kWords + 4, kSteps = kWords / 8;
constexpr int kTileThreads = 256, kTileBlocks = 2, kTileTokens = 8;
constexpr int kTileRepeats = 128;

// Words of the operands: bf16 from {0.5, 1, 1.5, 2}, int8 from 0 to 3, so that sums are exact.
__host__ __device__ uint32_t half_value(uint32_t i) {
  const uint32_t bits[] = {0x3f00, 0x3f80, 0x3fc0, 0x4000};
  return bits[i % 4];
}
__host__ __device__ uint32_t tile_word(bool int8, uint32_t row, uint32_t word) {
  const uint32_t i = row * 7 + word * 3;
  if (!int8) return half_value(i) | half_value(i + 1) << 16;
  return i % 4 | (i + 1) % 4 << 8 | (i + 2) % 4 << 16 | (i + 3) % 4 << 24;
}
__host__ __device__ uint32_t token_word(bool int8, uint32_t token, uint32_t word) {
  return tile_word(int8, token * 5 + 1, word + 2);
}

__device__ uint32_t load_token(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}

template <bool kInt8>
struct MmaSum {
  using Type = float;
};
template <>
struct MmaSum<true> {
  using Type = int;
};

template <bool kInt8, int kTiles>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    multiply_tiles(int tokens, int repeats, double* total) {
  __shared__ uint32_t words[kTiles * kTileTokens * kPitch];
  for (int i = threadIdx.x; i < kTiles * kTileTokens * kWords; i += kTileThreads) {
    const int token = i / kWords, word = i % kWords;
    words[token * kPitch + word] = token < tokens ? token_word(kInt8, token, word) : 0;
  }
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
  uint32_t a[2][kSteps][4];
  for (int block = 0; block < 2; ++block) {
    for (int step = 0; step < kSteps; ++step) {
      for (int i = 0; i < 4; ++i) {
        a[block][step][i] =
            tile_word(kInt8, block * 16 + group + i % 2 * 8, step * 8 + quarter + i / 2 * 4);
      }
    }
  }
  typename MmaSum<kInt8>::Type d[2][kTiles][4] = {};
  const uint32_t base = ptx::shared_address(words) + 4 * (group * kPitch + quarter);
#pragma unroll 1
  for (int r = 0; r < repeats; ++r) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint32_t at = base + 4 * (tile * kTileTokens * kPitch + step * 8);
        const uint32_t b0 = load_token(at), b1 = load_token(at + 16);
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          if constexpr (kInt8) {
            ptx::mma_s8(d[block][tile], a[block][step], b0, b1);
          } else {
            ptx::mma_bf16(d[block][tile], a[block][step], b0, b1);
          }
        }
      }
    }
  }
  double sum = 0;
  for (int block = 0; block < 2; ++block) {
    for (int tile = 0; tile < kTiles; ++tile) {
      for (int i = 0; i < 4; ++i) sum += double(d[block][tile][i]);
    }
  }
  add_to_total(sum, total);
}

double word_product(bool int8, uint32_t x, uint32_t y) {
  double sum = 0;
  for (int i = 0; i < (int8 ? 4 : 2); ++i) {
    if (int8) {
      sum += double(x >> 8 * i & 255) * double(y >> 8 * i & 255);
      continue;
    }
    const auto value = [](uint32_t bits) {
      return bits == 0x3f00 ? 0.5 : bits == 0x3f80 ? 1.0 : bits == 0x3fc0 ? 1.5 : 2.0;
    };
    sum += value(x >> 16 * i & 0xffff) * value(y >> 16 * i & 0xffff);
  }
  return sum;
}

}  // namespace

struct MmaTiles::Data {
  explicit Data(LabGpu& gpu) : total(gpu) {}
  GridTotal<double> total;

  template <bool kInt8>
  void launch(LabGpu& gpu, int tokens) {
    using Kernel = void (*)(int, int, double*);
    static constexpr Kernel kKernels[] = {multiply_tiles<kInt8, 1>, multiply_tiles<kInt8, 2>,
                                          multiply_tiles<kInt8, 3>, multiply_tiles<kInt8, 4>,
                                          multiply_tiles<kInt8, 5>, multiply_tiles<kInt8, 6>,
                                          multiply_tiles<kInt8, 7>, multiply_tiles<kInt8, 8>};
    const int tiles = (tokens + kTileTokens - 1) / kTileTokens;
    kKernels[tiles - 1]<<<gpu.sms() * kTileBlocks, kTileThreads, 0, gpu.run().stream>>>(
        tokens, kTileRepeats, total.data());
  }
};

MmaTiles::MmaTiles(LabGpu& gpu) : gpu_(gpu), data_(std::make_unique<Data>(gpu)) {}
MmaTiles::~MmaTiles() = default;

void MmaTiles::launch(bool int8, int tokens) {
  int8 ? data_->launch<true>(gpu_, tokens) : data_->launch<false>(gpu_, tokens);
}

double MmaTiles::padded_flops(bool int8, int tokens) const {
  const double padded = double((tokens + kTileTokens - 1) / kTileTokens) * kTileTokens;
  const double warps = double(gpu_.sms()) * kTileBlocks * kTileThreads / 32;
  return 2.0 * warps * kWarpRows * padded * (int8 ? 128 : 64) * kTileRepeats;
}

bool MmaTiles::is_right(bool int8, int tokens) {
  data_->total.clear();
  launch(int8, tokens);
  double one = 0;  // every warp computes the same
  for (uint32_t row = 0; row < kWarpRows; ++row) {
    for (uint32_t token = 0; token < uint32_t(tokens); ++token) {
      for (uint32_t word = 0; word < kWords; ++word) {
        one += word_product(int8, tile_word(int8, row, word), token_word(int8, token, word));
      }
    }
  }
  const double warps = double(gpu_.sms()) * kTileBlocks * kTileThreads / 32;
  return data_->total.read() == warps * kTileRepeats * one;
}

}  // namespace ridge
