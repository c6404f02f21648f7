// MXFP4 matrices as gpt-oss releases them: nibbles in one tensor, exponents in another.
#include <cstring>

#include "engine/weights/load_tensors.h"
#include "engine/weights/storage_blocks.h"

namespace ridge {

namespace {

// Byte b of the released block holds elements 2 b and 2 b + 1.
void reorder_block(const std::byte* from, uint8_t exponent, BlockMxfp4& to) {
  const auto code = [&](int element) {
    return uint8_t(uint8_t(from[element / 2]) >> element % 2 * 4 & 15);
  };
  to.exponent = exponent;
  for (int i = 0; i < 16; ++i) to.q[i] = uint8_t(code(i) | code(i + 16) << 4);
}

void reorder_rows(const ReleasedMxfp4& from, const Matrix& matrix, int64_t first_row, int64_t rows,
                  std::byte* to) {
  const int64_t groups = matrix.columns / 32;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = (from.first_row + (first_row + row) * from.row_step) * groups;
    for (int64_t g = 0; g < groups; ++g) {
      BlockMxfp4 block;
      reorder_block(from.blocks + (first + g) * 16, uint8_t(from.scales[first + g]), block);
      std::memcpy(to + row * matrix.row_stride + g * int64_t{sizeof block}, &block, sizeof block);
    }
  }
}

}  // namespace

void reorder_mxfp4(Weights& weights, const std::vector<ReleasedMxfp4>& released, LateCopies* late) {
  std::vector<Matrix*> matrices;
  for (const ReleasedMxfp4& from : released) matrices.push_back(from.matrix);
  const auto copy = [released, shapes = values_of(matrices)](size_t i, int64_t first, int64_t rows,
                                                             std::byte* to) {
    reorder_rows(released[i], shapes[i], first, rows, to);
  };
  copy_matrices(weights, matrices, copy, late);
}

}  // namespace ridge
