#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "engine/cpu/matmul_amx.h"

namespace ridge::cpu {

#if defined(__x86_64__)

bool amx_is_usable() {
  static const bool usable = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24, kOsSaves = 1u << 27;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTiles) == 0) {
      return false;
    }
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsSaves) == 0) return false;
    unsigned low = 0, high = 0;  // what the operating system saves: tiles are bits 17 and 18
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low >> 17 & 3) != 3) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return usable;
}

MatmulKernel amx_kernel() { return AmxKernel<AmxTiles>::kernel(); }

#else

bool amx_is_usable() { return false; }
MatmulKernel amx_kernel() { return {}; }

#endif

}  // namespace ridge::cpu
