// The inner loops of the CPU measurements, one set for each instruction set the CPU has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ridge {

// Arrays are aligned to 64 bytes and hold a multiple of kStep floats. Each kernel goes over them
// `repeats` times.
inline constexpr size_t kStep = 128;

struct KernelSet {
  std::string isa;  // "AVX-512", "AVX2", "SSE2", "SVE", "NEON"
  int vector_bytes;

  // Sum of the bit patterns of all floats, modulo 2^32, over all repeats: proves every load.
  uint32_t (*read)(const float* a, size_t count, long repeats);
  void (*write)(float* a, size_t count, long repeats, float value);         // a = value
  void (*write_stream)(float* a, size_t count, long repeats, float value);  // past the caches
  void (*copy)(float* to, const float* from, size_t count, long repeats);
  void (*copy_stream)(float* to, const float* from, size_t count, long repeats);
  void (*update)(float* a, size_t count, long repeats, float factor);  // a = factor a
  void (*triad)(float* a, const float* b, const float* c, size_t count, long repeats,
                float factor);  // a = b + factor c
  void (*triad_stream)(float* a, const float* b, const float* c, size_t count, long repeats,
                       float factor);

  // Independent chains of multiply-adds in registers; returns a sum of them all. Operations done:
  // fma_ops(lanes) x repeats.
  double (*fma32)(long repeats);
  double (*fma64)(long repeats);
  double fma32_ops() const;  // operations of one repeat
  double fma64_ops() const;
};

// Widest first. Never empty.
const std::vector<KernelSet>& kernel_sets();

// An instruction beyond those of Highway 1.0: dot products into 32 bits, tiles.
struct DotKernel {
  const char* id;   // "int8", "bf16", "fp16": the peak it measures
  const char* isa;  // "AVX-512 VNNI", "AMX"
  double ops;       // operations of one repeat
  double (*run)(long repeats);
};

// Those this CPU has and the system lets us use; `missing` gains a line for each that is there but
// closed (AMX without permission).
std::vector<DotKernel> dot_kernels(std::vector<std::string>& missing);

// What runs of `fma`, `dot` must return, to within rounding: proves that the chains ran.
inline constexpr double kFmaFixedPoint = 2.0;

}  // namespace ridge
