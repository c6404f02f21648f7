// Copies within a rank's own memory.
#pragma once

#include <cstddef>
#include <cstring>

namespace ridge {

// As memcpy, with vector loads and stores. For messages from a few KB on the C library takes
// "rep movsb": the fastest way to another core's cache, but on AMD Zen 3 and 4 several times slower
// where source and target lie at about the same offset of a page, as large buffers of one rank do
// (glibc bug 30994).
inline void copy_locally(void* to, const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  struct Line {
    std::byte bytes[kLine];
  };
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  size_t at = 0;
  for (; at + kLine <= bytes; at += kLine) {
    Line line;
    std::memcpy(&line, in + at, kLine);
    std::memcpy(out + at, &line, kLine);
    // The compiler would make a call of memcpy of this loop.
    asm volatile("" : : : "memory");
  }
  std::memcpy(out + at, in + at, bytes - at);
}

}  // namespace ridge
