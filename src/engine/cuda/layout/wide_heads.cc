#include "engine/cuda/layout/wide_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ridge::cuda {
namespace {

// Converts row r to bf16.
void fill_row(const Matrix& m, int64_t r, uint16_t* to) {
  if (m.storage == Storage::bf16) {
    std::memcpy(to, m.row(r), size_t(m.columns) * 2);
    return;
  }
  thread_local std::vector<float> scratch;
  scratch.resize(size_t(m.columns));
  dequantize(m.storage, m.row(r), m.columns, scratch.data());
  for (int64_t c = 0; c < m.columns; ++c) to[c] = f32_to_bf16(scratch[size_t(c)]);
}

}  // namespace

FillRows rows_of(const Matrix& m) {
  return [&m](int64_t first, int64_t count, uint16_t* to) {
    for (int64_t r = 0; r < count; ++r) fill_row(m, first + r, to + r * m.columns);
  };
}

WideHeads::WideHeads(int head_dim, int rotary_dims)
    : narrow_(head_dim), rotary_(rotary_dims), wide_(head_dim) {
  for (const int width : {256, 128, 64}) {
    if (head_dim <= width) wide_ = width;
  }
}

int WideHeads::place(int column) const {
  const int half = wide_ / 2, rotated = rotary_ / 2, spare = half - rotated;
  if (column < rotated) return column;
  if (column < rotary_) return half + column - rotated;
  const int rest = column - rotary_;
  return rest < spare ? rotated + rest : half + rotated + rest - spare;
}

FillRows WideHeads::rows(const Matrix& m) const {
  if (is_same()) return rows_of(m);
  std::vector<int> from(size_t(wide_), -1);  // row of the narrow head, or -1: zeros
  for (int c = 0; c < narrow_; ++c) from[size_t(place(c))] = c;
  return [&m, from, narrow = narrow_](int64_t first, int64_t count, uint16_t* to) {
    const int64_t wide = int64_t(from.size());
    for (int64_t r = first; r < first + count; ++r, to += m.columns) {
      const int row = from[size_t(r % wide)];
      if (row < 0) {
        std::fill_n(to, m.columns, uint16_t{0});
      } else {
        fill_row(m, r / wide * narrow + row, to);
      }
    }
  };
}

FillRows WideHeads::columns(const Matrix& m) const {
  if (is_same()) return rows_of(m);
  return [&m, heads = *this](int64_t first, int64_t count, uint16_t* to) {
    std::vector<uint16_t> row(size_t(m.columns));
    const int64_t columns = m.columns / heads.narrow_ * heads.wide_;
    for (int64_t r = first; r < first + count; ++r, to += columns) {
      fill_row(m, r, row.data());
      std::fill_n(to, columns, uint16_t{0});
      for (int64_t c = 0; c < m.columns; ++c) {
        to[c / heads.narrow_ * heads.wide_ + heads.place(int(c % heads.narrow_))] = row[size_t(c)];
      }
    }
  };
}

Vector WideHeads::vector(const Vector& narrow) const {
  Vector made(narrow.size() / size_t(narrow_) * size_t(wide_));
  for (size_t i = 0; i < narrow.size(); ++i) {
    made[i / size_t(narrow_) * size_t(wide_) + size_t(place(int(i) % narrow_))] = narrow[i];
  }
  return made;
}

Vector WideHeads::norm(const Vector& narrow) const {
  Vector made = vector(narrow);
  const float less = float(std::sqrt(double(narrow_) / wide_));
  for (float& weight : made) weight *= less;
  return made;
}

std::vector<float> WideHeads::frequency(std::vector<float> narrow) const {
  narrow.resize(size_t(wide_) / 2);
  return narrow;
}

}  // namespace ridge::cuda
