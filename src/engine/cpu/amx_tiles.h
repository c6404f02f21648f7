// AMX's tile registers: eight matrices of 16 rows x 64 bytes, and a product of two of them.
//
// AmxTiles are the CPU's. ModelTiles compute the same in ordinary code, bit for bit, so that a
// kernel written for Tiles can be checked on a CPU without them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ridge::cpu {

constexpr int kTileRows = 16, kTileBytes = 64;  // of a row

// Whether the CPU has tiles and their bf16 product, and the kernel lets this process use them. Asks
// for that once.
bool amx_is_usable();

#if defined(__x86_64__)
// The state is the thread's. GCC 12 does not know that these instructions read memory: every one
// is a barrier for the compiler.
struct AmxTiles {
  struct alignas(64) Shape {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  // All eight tiles whole. Between begin() and end() a thread may use the rest.
  static void begin() {
    Shape shape;
    for (int i = 0; i < 8; ++i) shape.row_bytes[i] = kTileBytes, shape.rows[i] = kTileRows;
    asm volatile("ldtilecfg %0" ::"m"(shape) : "memory");
  }
  static void end() { asm volatile("tilerelease" ::: "memory"); }

  // 16 x 16 words: to[pair][row] = from[row][pair]. Each round interleaves rows i and i + 8: four
  // of them are a transposition.
  __attribute__((target("avx512f"))) static void transpose(const std::byte* from, int64_t stride,
                                                           std::byte* to) {
    using Words = uint32_t __attribute__((vector_size(64)));
    Words rows[16], next[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) std::memcpy(&rows[i], from + i * stride, 64);
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        next[2 * i] = __builtin_shufflevector(rows[i], rows[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                              20, 5, 21, 6, 22, 7, 23);
        next[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 8], 8, 24, 9, 25, 10, 26, 11,
                                                  27, 12, 28, 13, 29, 14, 30, 15, 31);
      }
      std::memcpy(rows, next, sizeof rows);
    }
    std::memcpy(to, rows, sizeof rows);
  }

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride) : "memory");
  }
  // For data that need not stay in the L1.
  template <int kTile>
  static void load_once(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride) : "memory");
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(to), "r"(stride) : "memory");
  }
  // C += A B: sums[m][n] += a[m][2 k] b[k][2 n] + a[m][2 k + 1] b[k][2 n + 1] over k.
  template <int kC, int kA, int kB>
  static void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};
#endif

// Per product of 32 columns the CPU adds even + odd to C, where even and odd are chains of 16
// multiply-adds from zero. Denormal inputs and results are zero.
struct ModelTiles {
  static void begin() {}
  static void end() {}
  static void transpose(const std::byte* from, int64_t stride, std::byte* to) {
    for (int row = 0; row < kTileRows; ++row) {
      for (int pair = 0; pair < kTileRows; ++pair) {
        std::memcpy(to + pair * kTileBytes + row * 4, from + row * stride + pair * 4, 4);
      }
    }
  }
  template <int kTile>
  static void zero() {
    std::memset(tiles[kTile], 0, sizeof tiles[kTile]);
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    for (int row = 0; row < kTileRows; ++row) {
      std::memcpy(tiles[kTile][row], static_cast<const std::byte*>(from) + row * stride,
                  kTileBytes);
    }
  }
  template <int kTile>
  static void load_once(const void* from, int64_t stride) {
    load<kTile>(from, stride);
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    for (int row = 0; row < kTileRows; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tiles[kTile][row], kTileBytes);
    }
  }
  template <int kC, int kA, int kB>
  static void multiply_bf16() {
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileRows; ++n) {
        float c;
        std::memcpy(&c, tiles[kC][m] + 4 * n, 4);
        float sums[2] = {0, 0};  // even, odd
        for (int k = 0; k < kTileRows; ++k) {
          for (int i = 0; i < 2; ++i) {
            sums[i] = flushed(
                __builtin_fmaf(bf16_at(kA, m, 2 * k + i), bf16_at(kB, k, 2 * n + i), sums[i]));
          }
        }
        c = flushed(flushed(c) + flushed(sums[0] + sums[1]));
        std::memcpy(tiles[kC][m] + 4 * n, &c, 4);
      }
    }
  }

  static inline thread_local std::byte tiles[8][kTileRows][kTileBytes];

 private:
  static float flushed(float x) {
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x;
  }
  static float bf16_at(int tile, int row, int column) {
    uint16_t half;
    std::memcpy(&half, tiles[tile][row] + 2 * column, 2);
    const uint32_t bits = uint32_t{half} << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return flushed(value);
  }
};

}  // namespace ridge::cpu
