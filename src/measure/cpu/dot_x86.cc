// Peaks of the x86 instructions that Highway 1.0 does not issue: VNNI, BF16, FP16 and AMX tiles.
// Each function is compiled for its own instruction set and called only where the CPU has it.
#include "measure/cpu/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "machine/detect.h"

namespace ridge {
namespace {

// Twelve chains, as for the FMA kernels.
constexpr int kChains = 12;
constexpr int kUnroll = 8;

// Each repeat adds 4 products of 1 x 1 to every 32-bit lane and chain, so the sum is known.
__attribute__((target("avx512f,avx512vnni"))) double vnni512(long repeats) {
  volatile int ones_in = 0x01010101;
  const __m512i ones = _mm512_set1_epi32(ones_in);
  __m512i x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = _mm512_set1_epi32(ones_in + c);  // unlike each other
  for (long i = 0; i < repeats; ++i) {
#pragma GCC unroll 8
    for (int unroll = 0; unroll < kUnroll; ++unroll) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) x[c] = _mm512_dpbusd_epi32(x[c], ones, ones);
    }
  }
  alignas(64) uint32_t lanes[16];
  __m512i sum = _mm512_setzero_si512();
  for (const __m512i& v : x) sum = _mm512_add_epi32(sum, v);
  _mm512_store_si512(lanes, sum);
  return static_cast<double>(lanes[0]);
}

__attribute__((target("avx2,avxvnni"))) double vnni256(long repeats) {
  volatile int ones_in = 0x01010101;
  const __m256i ones = _mm256_set1_epi32(ones_in);
  __m256i x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = _mm256_set1_epi32(ones_in + c);  // unlike each other
  for (long i = 0; i < repeats; ++i) {
#pragma GCC unroll 8
    for (int unroll = 0; unroll < kUnroll; ++unroll) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) x[c] = _mm256_dpbusd_avx_epi32(x[c], ones, ones);
    }
  }
  alignas(32) uint32_t lanes[8];
  __m256i sum = _mm256_setzero_si256();
  for (const __m256i& v : x) sum = _mm256_add_epi32(sum, v);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  return static_cast<double>(lanes[0]);
}

// Products of 1 and 2^-12: the sum grows slowly and stays normal.
__attribute__((target("avx512f,avx512bf16"))) double bf16_512(long repeats) {
  volatile int ones_in = 0x3f803f80, small_in = 0x39803980;
  const __m512bh ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(ones_in));
  const __m512bh small = reinterpret_cast<__m512bh>(_mm512_set1_epi32(small_in));
  __m512 x[kChains];
  for (int c = 0; c < kChains; ++c) {  // unlike each other
    x[c] = _mm512_set1_ps(static_cast<float>(ones_in & c));
  }
  for (long i = 0; i < repeats; ++i) {
#pragma GCC unroll 8
    for (int unroll = 0; unroll < kUnroll; ++unroll) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) x[c] = _mm512_dpbf16_ps(x[c], ones, small);
    }
  }
  __m512 sum = _mm512_setzero_ps();
  for (const __m512& v : x) sum = _mm512_add_ps(sum, v);
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, sum);
  return static_cast<double>(lanes[0]);
}

// Tiles of 16 rows of 64 bytes: 2 inputs, 4 accumulators, so that a tile product (16 clocks apart,
// about 52 until its result) always has an independent one to follow.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 0};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 0};
};

// Random bits within MASK: with equal operands the CPU holds a clock that it does not hold on real
// ones (zeros read 25 % high on an Emerald Rapids). Positive, so that the sums grow. GCC 12 does
// not know that the tile instructions read memory.
#define RIDGE_TILE_LOOP(INSTRUCTION, MASK, SET)         \
  const TileConfig config;                              \
  alignas(64) uint32_t data[256];                       \
  uint32_t random = 0x2545f491;                         \
  for (uint32_t & word : data) {                        \
    random ^= random << 13;                             \
    random ^= random >> 17;                             \
    random ^= random << 5;                              \
    word = (random & (MASK)) | (SET);                   \
  }                                                     \
  alignas(64) int32_t out[256];                         \
  asm volatile("" ::"m"(config), "m"(data) : "memory"); \
  _tile_loadconfig(&config);                            \
  _tile_zero(0);                                        \
  _tile_zero(1);                                        \
  _tile_zero(2);                                        \
  _tile_zero(3);                                        \
  _tile_loadd(4, data, 64);                             \
  _tile_loadd(5, data, 64);                             \
  for (long i = 0; i < repeats; ++i) {                  \
    INSTRUCTION(0, 4, 5);                               \
    INSTRUCTION(1, 4, 5);                               \
    INSTRUCTION(2, 4, 5);                               \
    INSTRUCTION(3, 4, 5);                               \
  }                                                     \
  _tile_stored(0, out, 64);                             \
  asm volatile("" : "+m"(out)::"memory");               \
  _tile_release()

__attribute__((target("amx-tile,amx-int8"))) double amx_int8(long repeats) {
  RIDGE_TILE_LOOP(_tile_dpbusd, 0x7f7f7f7f, 0);
  return static_cast<double>(static_cast<uint32_t>(out[0]));
}

__attribute__((target("amx-tile,amx-bf16"))) double amx_bf16(long repeats) {
  RIDGE_TILE_LOOP(_tile_dpbf16ps, 0x00ff00ff, 0x39003900);  // 2^-13 to 2^-11
  float value;
  __builtin_memcpy(&value, &out[0], sizeof value);
  return static_cast<double>(value);
}

// Linux gives a process the tile registers only when it asks (since 5.16).
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::vector<DotKernel> dot_kernels(std::vector<std::string>& missing) {
  std::ifstream file("/proc/cpuinfo");
  std::ostringstream text;
  text << file.rdbuf();
  const CpuInfo info = parse_cpuinfo(text.str());
  constexpr double kInstructions = kChains * kUnroll;
  std::vector<DotKernel> kernels;
  if (info.has("avx512_vnni")) {
    kernels.push_back({"int8", "AVX-512 VNNI", kInstructions * 16 * 4 * 2, vnni512});
  }
  if (info.has("avx_vnni")) {
    kernels.push_back({"int8", "AVX-VNNI", kInstructions * 8 * 4 * 2, vnni256});
  }
  if (info.has("avx512_bf16")) {
    kernels.push_back({"bf16", "AVX-512 BF16", kInstructions * 16 * 2 * 2, bf16_512});
  }
  if (info.has("amx_tile")) {
    constexpr double kTile = 16 * 16 * 2;
    if (!ask_for_tiles()) {
      missing.emplace_back("AMX: the CPU has it, the kernel did not grant the tile registers");
    } else {
      if (info.has("amx_int8")) kernels.push_back({"int8", "AMX", 4 * kTile * 64, amx_int8});
      if (info.has("amx_bf16")) kernels.push_back({"bf16", "AMX", 4 * kTile * 32, amx_bf16});
    }
  }
  return kernels;
}

}  // namespace ridge

#else

namespace ridge {
std::vector<DotKernel> dot_kernels(std::vector<std::string>&) { return {}; }
}  // namespace ridge

#endif
