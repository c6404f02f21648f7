#include "measure/cpu/cache_flush.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace ridge {
namespace {

constexpr size_t kLineBytes = 64;  // or more: then a line is flushed twice

#if defined(__x86_64__)
// Clang 14's __builtin_cpu_supports does not know this feature.
bool has_clflushopt() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_CLFLUSHOPT) != 0;
}

// Unlike clflush, the flushes of several lines overlap.
__attribute__((target("clflushopt"))) void flush_overlapping(const char* begin, const char* end) {
  for (const char* line = begin; line < end; line += kLineBytes) {
    _mm_clflushopt(const_cast<char*>(line));
  }
}
#endif

}  // namespace

bool can_flush_caches() {
#if defined(__x86_64__) || defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

void flush_from_caches([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#if defined(__x86_64__)
  const char* begin = static_cast<const char*>(data);
  if (has_clflushopt()) {
    flush_overlapping(begin, begin + bytes);
  } else {
    for (const char* line = begin; line < begin + bytes; line += kLineBytes) _mm_clflush(line);
  }
  _mm_mfence();
#elif defined(__aarch64__)
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (uintptr_t line = begin; line < begin + bytes; line += kLineBytes) {
    asm volatile("dc civac, %0" ::"r"(line) : "memory");
  }
  asm volatile("dsb sy" ::: "memory");
#endif
}

}  // namespace ridge
