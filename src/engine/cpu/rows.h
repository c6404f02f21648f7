// Activations of a step on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/mapped_buffer.h"

namespace ridge::cpu {

// Rows of floats for the largest step, aligned to cache lines. Rows that GEMMs write are an odd
// number of cache lines apart: rows of 8 KB would map to a few sets of the caches.
class Rows {
 public:
  enum class Layout { odd_lines, contiguous };
  Rows(int rows, int64_t columns, Layout layout = Layout::odd_lines)
      : columns_(columns),
        stride_(layout == Layout::contiguous ? columns : ((columns + 15) / 16 | 1) * 16),
        buffer_(size_t(std::max(rows, 1)) * size_t(std::max<int64_t>(stride_, 1)) * sizeof(float)) {
    if (!buffer_) throw Error("no memory for activations of {} x {} floats", rows, columns);
  }
  float* data() const { return buffer_.as<float>(); }
  float* row(int64_t r) const { return data() + r * stride_; }
  int64_t columns() const { return columns_; }
  int64_t stride() const { return stride_; }

 private:
  int64_t columns_, stride_;
  MappedBuffer buffer_;
};

}  // namespace ridge::cpu
