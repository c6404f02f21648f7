#include "base/free_memory.h"

#include <cstdlib>  // which defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace ridge {

void return_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void limit_kept_memory() {
#ifdef __GLIBC__
  constexpr int kBytes = 4 << 20;
  mallopt(M_MMAP_THRESHOLD, kBytes);
  mallopt(M_TRIM_THRESHOLD, kBytes);
#endif
}

}  // namespace ridge
