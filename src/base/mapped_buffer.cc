#include "base/mapped_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace ridge {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

MappedBuffer::MappedBuffer(size_t bytes, Pages pages)
    : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage), data_(nullptr) {
  // One huge page more than needed, so that the data can be aligned to a huge page.
  void* raw =
      mmap(nullptr, bytes_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return;
  char* const start = static_cast<char*>(raw);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(raw) % kHugePage) % kHugePage;
  const size_t after = kHugePage - before;
  if (before > 0) munmap(start, before);
  munmap(start + before + bytes_, after);  // at least one page: before < kHugePage
  data_ = start + before;
  madvise(data_, bytes_, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

MappedBuffer::~MappedBuffer() {
  if (data_) munmap(data_, bytes_);
}

double MappedBuffer::huge_share() const {
  std::ifstream file("/proc/self/smaps");
  const uintptr_t start = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t end = start + bytes_;
  bool inside = false;
  double found = 0;
  for (std::string line; std::getline(file, line);) {
    uintptr_t low = 0, high = 0;
    char dash = 0;
    std::istringstream words(line);
    if (line.find(':') > line.find(' ') && words >> std::hex >> low >> dash >> high) {
      inside = low < end && high > start;  // a mapping's first line: "7f00-7f80 rw-p ..."
    } else if (inside && line.starts_with("AnonHugePages:")) {
      found += std::strtod(line.c_str() + std::string_view("AnonHugePages:").size(), nullptr);
    }
  }
  return std::min(1.0, found * 1024 / static_cast<double>(bytes_));
}

}  // namespace ridge
