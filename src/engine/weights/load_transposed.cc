// Matrices that a file stores by columns: Llama 4's experts.
#include <algorithm>
#include <cstring>

#include "engine/weights/load_tensors.h"

namespace ridge {

namespace {

// In squares, so that both sides stay in the cache.
template <typename T>
void transpose_matrix(const TransposedMatrix& from, std::byte* bytes) {
  constexpr int64_t kSide = 32;
  const Matrix& matrix = *from.matrix;
  const std::byte* data = from.data + from.first * int64_t{sizeof(T)};
  for (int64_t row = 0; row < matrix.rows; row += kSide) {
    for (int64_t column = 0; column < matrix.columns; column += kSide) {
      for (int64_t r = row; r < std::min(row + kSide, matrix.rows); ++r) {
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

void transpose_matrices(Weights& weights, const std::vector<TransposedMatrix>& transposed) {
  std::vector<Matrix*> matrices;
  for (const TransposedMatrix& from : transposed) matrices.push_back(from.matrix);
  copy_matrices(weights, matrices, [&](size_t i, std::byte* to) {
    const bool wide = matrices[i]->storage == Storage::f32;
    (wide ? transpose_matrix<float> : transpose_matrix<uint16_t>)(transposed[i], to);
  });
}

}  // namespace ridge
