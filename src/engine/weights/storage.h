// Storage formats of weights: plain numbers, or blocks of small integers with scales.
//
// The block formats are ggml's, bit for bit, so that GGUF files are used in place; fp8 is what
// released fp8 checkpoints become on loading (load_fp8.cc). dequantize and quantize are the
// specification: scalar, in f32, exact where the format is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/half.h"

namespace ridge {

enum class Storage : uint8_t {
  f32,
  f16,
  bf16,
  q8_0,   // 32 x (f16 d; int8 q):                w = d q
  q4_0,   // 32 x (f16 d; 4-bit q):               w = d (q - 8)
  q4_1,   // 32 x (f16 d, m; 4-bit q):            w = d q + m
  q5_0,   // 32 x (f16 d; 5-bit q):               w = d (q - 16)
  q5_1,   // 32 x (f16 d, m; 5-bit q):            w = d q + m
  q4_k,   // 256: eight 32s, 6-bit scale and min: w = d s q - dmin m
  q5_k,   // the same with 5-bit q
  q6_k,   // 256: sixteen 16s, int8 scale, 6-bit: w = d s (q - 32)
  mxfp4,  // 32 x (8-bit exponent e; e2m1 q):    w = 2^(e - 127) q (OCP MX 1.0)
  fp8,    // 128 x (f32 d; e4m3 q):              w = d q
  kCount
};
inline constexpr int kStorageCount = static_cast<int>(Storage::kCount);

struct StorageInfo {
  std::string_view name;  // "q4_0", as Format and GGUF headers name it ("fp32", "fp16", "bf16")
  int block;              // elements
  int bytes;              // per block
  double bits() const { return 8.0 * bytes / block; }
};
const StorageInfo& storage_info(Storage storage);
// Also accepts "f32" and "f16". Throws Error that lists the names.
Storage storage_from_name(std::string_view name);

// Bytes of `count` elements; `count` must fill whole blocks.
size_t storage_bytes(Storage storage, int64_t count);

// `count` must fill whole blocks. `from` and `to` need no alignment.
void dequantize(Storage storage, const std::byte* from, int64_t count, float* to);
// Rounds to nearest even (bf16, f16). Block formats choose the scale that makes the largest
// magnitude exact (q8_0, q4_0, q5_0, fp8), the range (q4_1, q5_1), the best of a short search (the
// K formats), or the least power of two that holds the largest magnitude (mxfp4).
void quantize(Storage storage, const float* from, int64_t count, std::byte* to);

// E4M3 of the OCP's FP8: bias 7, no infinity, NaN where all seven bits of the magnitude are set.
inline constexpr float kMostE4m3 = 448;
float e4m3_to_f32(uint8_t bits);
uint8_t f32_to_e4m3(float value);  // nearest even; beyond 448 saturates; NaN stays NaN

}  // namespace ridge
