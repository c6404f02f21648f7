// Activations of a step on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/mapped_buffer.h"

namespace ridge::cpu {

// Rows of floats for the largest step, aligned to cache lines.
class Rows {
 public:
  Rows(int rows, int64_t columns)
      : columns_(columns),
        buffer_(size_t(std::max(rows, 1)) * size_t(std::max<int64_t>(columns, 1)) * sizeof(float)) {
    if (!buffer_) throw Error("no memory for activations of {} x {} floats", rows, columns);
  }
  float* data() const { return buffer_.as<float>(); }
  float* row(int64_t r) const { return data() + r * columns_; }
  int64_t stride() const { return columns_; }

 private:
  int64_t columns_;
  MappedBuffer buffer_;
};

}  // namespace ridge::cpu
