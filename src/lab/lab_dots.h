// Loops over an array with dot products in narrow formats: each kilobyte is read once and
// multiplied as often as asked, so that FLOPs per byte can be turned from 1/16 to 1024. Each runs
// on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace ridge {

// How often what is read is multiplied: `products` times each kilobyte, or once every `group`
// kilobytes (products 0).
struct DotTurn {
  int products = 1, group = 1;
  double per_read() const { return products > 0 ? products : 1.0 / group; }
};

struct DotLoop {
  DType dtype;        // of the operands
  const char* isa;    // "AMX", "AVX-512 VNNI": as DotKernel::isa has it
  double ops_per_kb;  // operations of one product with a kilobyte
  // Reads `bytes` (whole kilobytes, aligned to 64) `repeats` times. Returns the sum of the 32-bit
  // accumulators of all products, which dot_loop_sum() has as well.
  double (*run)(const std::byte* a, size_t bytes, long repeats, const DotTurn& turn);

  double flop_per_byte(const DotTurn& turn) const { return ops_per_kb * turn.per_read() / 1024; }
};

inline constexpr size_t kDotStep = 1024;  // bytes

// Those that this CPU has, for bf16 and int8. Of each dtype the fastest comes first.
std::vector<DotLoop> dot_loops();

// Operands as the loops read them: random bits, of which every product is positive. A CPU holds a
// higher clock on equal operands than on real ones.
void fill_dot_operands(DType dtype, std::byte* to, size_t bytes);

// What one pass of the loop must return, computed in plain code. Of at most 16 kB.
double dot_loop_sum(const DotLoop& loop, const std::byte* a, size_t bytes, const DotTurn& turn);

}  // namespace ridge
