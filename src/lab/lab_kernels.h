// Vector loops that exist only for experiments, for the widest instruction set the CPU has. Each
// runs on the calling thread. Arrays are aligned to 64 bytes and hold a multiple of kLabStep
// floats.
#pragma once

#include <cstddef>

namespace ridge::lab_kernels {

inline constexpr size_t kLabStep = 256;

// Reads every float of `a`, `repeats` times, with `fmas` multiply-adds for each (fmas >= 1), or
// with one addition for each group of `group` floats (fmas 0; group 1, 2 or 4). Where all floats
// are 1, the multiply-adds converge to 2 and that is returned; additions return the count of
// groups over all repeats.
double turn_intensity(const float* a, size_t count, long repeats, int fmas, int group);

// to = f(f(...from)), `times` multiply-adds f(x) = x/2 + 1 for each element. `to` may be `from`.
void apply_chain(float* to, const float* from, size_t count, int times);

// The sum of those values, which are not stored; times 0: of the array itself. Each order of sums
// is the same, so that chain_sum(a, n, k) equals chain_sum(b, n, 0) after apply_chain(b, a, n, k).
float chain_sum(const float* from, size_t count, int times);

// to = a + b.
void add(float* to, const float* a, const float* b, size_t count);

// Four operators of a block, each as a pass of its own: to = from / rms(from) over rows of `width`
// floats; x = x y; x = x / (1 + e^-x).
void norm_rows(float* to, const float* from, size_t count, size_t width);
void multiply(float* x, const float* y, size_t count);
void silu(float* x, size_t count);
// All of them and the residual in one pass: x += silu(norm(x) y). A row stays in the L1.
void norm_multiply_silu_add(float* x, const float* y, size_t count, size_t width);

// gate = gate / (1 + e^-gate) * up: the activation of a gated MLP as a pass of its own.
void silu_times(float* gate, const float* up, size_t count);

// Softmax of scale x over the first `count` elements of a row, in place; any count. Three passes
// over a row that fits the L1 or L2: maximum, exponentials with their sum, division.
void softmax_row(float* row, size_t count, float scale);

}  // namespace ridge::lab_kernels
