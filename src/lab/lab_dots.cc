// Each loop is compiled for its own instruction set and called only where the CPU has it.
#include "lab/lab_dots.h"

#include <cstring>
#include <type_traits>

#include "base/random.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "engine/cpu/amx_tiles.h"

namespace ridge {
namespace {

// The second operand: 16 x 64 bytes, the same for all products.
struct alignas(64) DotFactor {
  std::byte data[kDotStep];
};

uint32_t dot_word(DType dtype, uint64_t random) {
  const auto word = uint32_t(random);
  // bf16 from 2^-13 to 2^-11; int8 from 0 to 127.
  return dtype == DType::bf16 ? (word & 0x00ff00ffu) | 0x39003900u : word & 0x7f7f7f7fu;
}

const DotFactor& dot_factor(DType dtype) {
  static const DotFactor* const factors = [] {
    static DotFactor both[2];
    for (const DType d : {DType::bf16, DType::int8}) {
      SplitMix64 random(17);
      for (size_t i = 0; i < kDotStep; i += 4) {
        const uint32_t word = dot_word(d, random.next());
        std::memcpy(both[d == DType::int8].data + i, &word, 4);
      }
    }
    return both;
  }();
  return factors[dtype == DType::int8];
}

#if defined(__x86_64__)

// Four accumulators take turns: a tile product starts every 16 clocks and ends after about 52.
template <bool kInt8, int kTo>
void tile_product() {
  if constexpr (kInt8) {
    asm volatile("tdpbusd %%tmm5, %%tmm4, %%tmm%c0" ::"i"(kTo));
  } else {
    asm volatile("tdpbf16ps %%tmm5, %%tmm4, %%tmm%c0" ::"i"(kTo));
  }
}

void load_dot_tile(const std::byte* a) {
  asm volatile("tileloadd (%0,%1,1), %%tmm4" ::"r"(a), "r"(int64_t{64}) : "memory");
}

// products: 0 (once every `group` tiles), 1, 2 or a multiple of 4.
template <bool kInt8>
void multiply_tile(int products, size_t tile, int group) {
  if (products == 0) {
    if (tile % size_t(group) == 0) tile_product<kInt8, 0>();
    return;
  }
  if (products <= 2) {
    if (tile % 2 == 0) {
      tile_product<kInt8, 0>();
      if (products == 2) tile_product<kInt8, 1>();
    } else {
      tile_product<kInt8, 2>();
      if (products == 2) tile_product<kInt8, 3>();
    }
    return;
  }
  for (int p = 0; p < products; p += 4) {
    tile_product<kInt8, 0>();
    tile_product<kInt8, 1>();
    tile_product<kInt8, 2>();
    tile_product<kInt8, 3>();
  }
}

template <typename Word>
double word_sum(const Word* words, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += double(words[i]);
  return sum;
}

template <bool kInt8>
double amx_dots(const std::byte* a, size_t bytes, long repeats, const DotTurn& turn) {
  using Word = std::conditional_t<kInt8, int32_t, float>;
  cpu::AmxTiles::begin();
  asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::);
  const std::byte* const factor = dot_factor(kInt8 ? DType::int8 : DType::bf16).data;
  asm volatile("tileloadd (%0,%1,1), %%tmm5" ::"r"(factor), "r"(int64_t{64}) : "memory");
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t tile = 0; tile < bytes / kDotStep; ++tile) {
      load_dot_tile(a + tile * kDotStep);
      multiply_tile<kInt8>(turn.products, tile, turn.group);
    }
  }
  alignas(64) Word out[4][256];
  asm volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(&out[0]), "r"(int64_t{64}) : "memory");
  asm volatile("tilestored %%tmm1, (%0,%1,1)" ::"r"(&out[1]), "r"(int64_t{64}) : "memory");
  asm volatile("tilestored %%tmm2, (%0,%1,1)" ::"r"(&out[2]), "r"(int64_t{64}) : "memory");
  asm volatile("tilestored %%tmm3, (%0,%1,1)" ::"r"(&out[3]), "r"(int64_t{64}) : "memory");
  cpu::AmxTiles::end();
  return word_sum(&out[0][0], 4 * 256);
}

// A kilobyte is 16 vectors, each multiplied with the same vector into one of 8 accumulators.
// Compiled for both dot products; each instance executes one.
template <bool kInt8>
__attribute__((target("avx512f,avx512bf16,avx512vnni"))) double vector_dots(const std::byte* a,
                                                                            size_t bytes,
                                                                            long repeats,
                                                                            const DotTurn& turn) {
  using Word = std::conditional_t<kInt8, int32_t, float>;
  const __m512i factor = _mm512_load_si512(dot_factor(kInt8 ? DType::int8 : DType::bf16).data);
  __m512i sum[8];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t at = 0; at < bytes; at += kDotStep) {
      const bool multiplied = turn.products > 0 || at / kDotStep % size_t(turn.group) == 0;
      const int products = !multiplied ? 0 : turn.products > 0 ? turn.products : 1;
      for (int half = 0; half < 2; ++half) {
        __m512i x[8];
        for (int i = 0; i < 8; ++i) {
          x[i] = _mm512_load_si512(a + at + 512 * half + 64 * i);
          asm volatile("" : "+v"(x[i]));
        }
        for (int p = 0; p < products; ++p) {
          for (int i = 0; i < 8; ++i) {
            if constexpr (kInt8) {
              sum[i] = _mm512_dpbusd_epi32(sum[i], x[i], factor);
            } else {
              sum[i] = _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(sum[i]),
                                                            reinterpret_cast<__m512bh>(x[i]),
                                                            reinterpret_cast<__m512bh>(factor)));
            }
          }
        }
      }
    }
  }
  alignas(64) Word out[8][16];
  for (int i = 0; i < 8; ++i) _mm512_store_si512(out[i], sum[i]);
  return word_sum(&out[0][0], 128);
}

#endif

double dot_element(DType dtype, const std::byte* at, bool is_signed) {
  if (dtype == DType::int8) {
    return is_signed ? double(std::to_integer<int>(*at) << 24 >> 24) : std::to_integer<int>(*at);
  }
  uint16_t half;
  std::memcpy(&half, at, 2);
  const uint32_t wide = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return double(value);
}

}  // namespace

void fill_dot_operands(DType dtype, std::byte* to, size_t bytes) {
  SplitMix64 random(23);
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    const uint32_t word = dot_word(dtype, random.next());
    std::memcpy(to + i, &word, 4);
  }
}

// A tile product sums a[row][k] b[k][column] over k, where 4 bytes of b (2 bf16 or 4 int8) lie side
// by side: word w of a row of `a` meets row w of `b`. A vector product multiplies word by word.
double dot_loop_sum(const DotLoop& loop, const std::byte* a, size_t bytes, const DotTurn& turn) {
  const std::byte* b = dot_factor(loop.dtype).data;
  const bool tiles = std::strcmp(loop.isa, "AMX") == 0;
  const int width = loop.dtype == DType::int8 ? 1 : 2;
  double sum = 0;
  for (size_t kb = 0; kb < bytes / kDotStep; ++kb) {
    if (turn.products == 0 && kb % size_t(turn.group) != 0) continue;
    double product = 0;
    for (int row = 0; row < 16; ++row) {
      for (int at = 0; at < 64; at += width) {
        const double x = dot_element(loop.dtype, a + kb * kDotStep + size_t(row * 64 + at), false);
        if (!tiles) {
          product += x * dot_element(loop.dtype, b + at, true);
          continue;
        }
        for (int column = 0; column < 16; ++column) {
          product += x * dot_element(loop.dtype, b + at / 4 * 64 + column * 4 + at % 4, true);
        }
      }
    }
    sum += product * (turn.products > 0 ? turn.products : 1);
  }
  return sum;
}

std::vector<DotLoop> dot_loops() {
  std::vector<DotLoop> loops;
#if defined(__x86_64__)
  if (cpu::amx_is_usable()) {
    constexpr double kTile = 2.0 * 16 * 16;
    loops.push_back({DType::bf16, "AMX", kTile * 32, amx_dots<false>});
    loops.push_back({DType::int8, "AMX", kTile * 64, amx_dots<true>});
  }
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bf16")) {
    loops.push_back({DType::bf16, "AVX-512 BF16", 2.0 * 512, vector_dots<false>});
  }
  if (__builtin_cpu_supports("avx512vnni")) {
    loops.push_back({DType::int8, "AVX-512 VNNI", 2.0 * 1024, vector_dots<true>});
  }
#endif
  return loops;
}

}  // namespace ridge
