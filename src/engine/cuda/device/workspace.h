// Arrays of known sizes placed one after the other in one allocation.
//
// A struct of arrays takes its pointers from a Workspace in its constructor. Constructed without
// memory, it counts the bytes it needs; with memory, it gets pointers. What is counted is therefore
// what is allocated. C++17 without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

class Workspace {
 public:
  Workspace() = default;  // counts only: all pointers are null
  explicit Workspace(uint8_t* memory) : memory_(memory) {}

  template <typename T>
  T* take(size_t count) {
    T* array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 256;  // cudaMalloc's
  uint8_t* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ridge::cuda
