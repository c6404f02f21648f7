// Matrices that a file stores by columns: Llama 4's experts.
#include <algorithm>
#include <cstring>

#include "engine/weights/load_tensors.h"

namespace ridge {

namespace {

// In squares, so that both sides stay in the cache.
template <typename T>
void transpose_rows(const TransposedMatrix& from, const Matrix& matrix, int64_t first, int64_t rows,
                    std::byte* bytes) {
  constexpr int64_t kSide = 32;
  const std::byte* data = from.data + (from.first + first) * int64_t{sizeof(T)};
  for (int64_t row = 0; row < rows; row += kSide) {
    for (int64_t column = 0; column < matrix.columns; column += kSide) {
      for (int64_t r = row; r < std::min(row + kSide, rows); ++r) {
        for (int64_t c = column; c < std::min(column + kSide, matrix.columns); ++c) {
          // Files align nothing.
          std::memcpy(bytes + r * matrix.row_stride + c * int64_t{sizeof(T)},
                      data + (c * from.stride + r) * int64_t{sizeof(T)}, sizeof(T));
        }
      }
    }
  }
}

}  // namespace

void transpose_matrices(Weights& weights, const std::vector<TransposedMatrix>& transposed,
                        LateCopies* late) {
  std::vector<Matrix*> matrices;
  for (const TransposedMatrix& from : transposed) matrices.push_back(from.matrix);
  const auto copy = [transposed, shapes = values_of(matrices)](size_t i, int64_t first,
                                                               int64_t rows, std::byte* to) {
    const bool wide = shapes[i].storage == Storage::f32;
    (wide ? transpose_rows<float> : transpose_rows<uint16_t>)(transposed[i], shapes[i], first, rows,
                                                              to);
  };
  copy_matrices(weights, matrices, copy, late);
}

}  // namespace ridge
