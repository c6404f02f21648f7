// GEMM kernels of the packed block formats. Compiled once per Highway target, and again for CPUs
// with int8 dot products that Highway 1.0 does not emit.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "engine/cpu/matmul_kernels.h"

#define HWY_DISABLED_TARGETS /* as in matmul_plain.cc */ \
  (HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSSE3
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/matmul_blocks.cc"  // this file, once per target
#include <hwy/foreach_target.h>                           // must come before highway.h
#include <hwy/highway.h>

#include "base/highway_targets.h"

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "engine/cpu/dot-inl.h"
// The kernels themselves.
#include "engine/cpu/blocks-inl.h"
BlockKernels get_own_blocks() { return get_blocks(hwy::TargetName(HWY_TARGET)); }
}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR_AVX3 ",avx512vnni")
#define RIDGE_NAMESPACE avx3_vnni
#else
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR_AVX2 ",avxvnni")
#define RIDGE_NAMESPACE avx2_vnni
#endif
#define RIDGE_DOT_VNNI
namespace ridge::cpu::RIDGE_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "engine/cpu/dot-inl.h"
// The kernels themselves.
#include "engine/cpu/blocks-inl.h"
BlockKernels get_own_blocks(const char* isa) { return get_blocks(isa); }
}  // namespace ridge::cpu::RIDGE_NAMESPACE
#undef RIDGE_DOT_VNNI
#undef RIDGE_NAMESPACE
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace ridge::cpu {

HWY_EXPORT(get_own_blocks);

#if HWY_ARCH_X86
// Dot products of bytes in 256-bit registers without AVX-512. clang 14's __builtin_cpu_supports
// does not know the feature.
static bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0;
}
#endif

std::vector<BlockKernels> block_kernels() {
  std::vector<BlockKernels> all;
  for_each_target(HWY_TARGETS, HWY_STATIC_TARGET, [&]([[maybe_unused]] int64_t target) {
#if HWY_ARCH_X86
    if (target == HWY_AVX3 && __builtin_cpu_supports("avx512vnni")) {
      all.push_back(avx3_vnni::get_own_blocks("AVX3_VNNI"));
      if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16")) {
        use_vbmi_unpack(all.back());
      }
    }
    if (target == HWY_AVX2 && has_avx_vnni()) {
      all.push_back(avx2_vnni::get_own_blocks("AVX2_VNNI"));
    }
#endif
    all.push_back(HWY_DYNAMIC_DISPATCH(get_own_blocks)());
  });
  return all;
}

}  // namespace ridge::cpu
#endif
