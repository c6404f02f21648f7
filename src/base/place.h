// Where a measurement runs: processors it may use, memory it may take, pages it lies in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ridge {

// The processors this process may run on, not those the machine has.
std::vector<int> usable_processors();
// One of them for each core: SMT siblings share the pipes that peaks measure.
std::vector<int> one_per_core(const std::vector<int>& processors);

// Bytes that can be taken without swapping or reaching the control group's limit.
double free_bytes();

enum class Pages : uint8_t { small, huge };  // 4 KB; 2 MB where the kernel agrees

// Anonymous memory, untouched: the thread that writes a page first has it near.
class MappedBuffer {
 public:
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
  // The share of the buffer that really lies in huge pages, as the kernel accounts it. Asking for
  // them is no guarantee.
  double huge_share() const;

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace ridge
