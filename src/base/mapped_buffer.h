// Large anonymous memory, aligned to huge pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridge {

enum class Pages : uint8_t { small, huge };  // 4 KB; 2 MB where the kernel agrees

// Zeroed memory that no thread has touched: the kernel places each page on the NUMA node of the
// thread that writes it first.
class MappedBuffer {
 public:
  // Rounds up to whole huge pages. A refused mapping leaves the buffer empty; nothing is thrown.
  explicit MappedBuffer(size_t bytes, Pages pages = Pages::huge);
  ~MappedBuffer();
  MappedBuffer(const MappedBuffer&) = delete;
  MappedBuffer& operator=(const MappedBuffer&) = delete;

  explicit operator bool() const { return data_ != nullptr; }
  size_t size() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  // The share of the buffer that the kernel accounts as huge pages. Pages::huge is only a request.
  double huge_share() const;

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace ridge
