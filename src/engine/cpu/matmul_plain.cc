// GEMM kernels of f32, f16 and bf16 weights, and the conversions of activations and epilogues of
// all GEMMs. Compiled once per Highway target.
#include <algorithm>
#include <cstring>

#include "engine/cpu/matmul_kernels.h"

// Highway 1.0's AVX3_DL is compiled with the VEX forms of VNNI, which not every CPU of that level
// has. Targets beyond AVX3 are therefore named here by the instruction they need.
#define HWY_DISABLED_TARGETS (HWY_SSE4 | HWY_AVX3_DL)
#if defined(__x86_64__)
// Highway has no vectors below SSSE3, which every x86-64 CPU has had since 2006.
#define HWY_BASELINE_TARGETS HWY_SSSE3
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/matmul_plain.cc"  // this file, once per target
#include <hwy/foreach_target.h>                          // must come before highway.h
#include <hwy/highway.h>

#include "engine/cpu/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;

constexpr int kTileTokens = HWY_MAX_BYTES == 64 ? 6 : 3;  // see tile()

// Rows of a panel are a chunk plus a cache line apart, to map to different sets of the L1.
template <class Ops>
constexpr size_t kPanelStride = static_cast<size_t>(Ops::kChunk) + 64 / sizeof(typename Ops::Panel);

template <typename Weight>  // float, hwy::float16_t, hwy::bfloat16_t
struct FloatOps {
  using Panel = float;
  using Vector = hn::Vec<Floats>;
  static constexpr InputKind kInput = InputKind::f32;
  static constexpr size_t kBytes = sizeof(Weight), kStep = HWY_MAX_BYTES / sizeof(float);
  // Four rows of a panel (8 KB) and the columns of six tokens (12 KB) fit in an L1 of 32 KB.
  static constexpr int64_t kChunk = 512;

  static HWY_INLINE Vector load(const std::byte* from) {
    const Floats d;
    const hn::Rebind<Weight, Floats> narrow;
    const auto weights = hn::LoadU(narrow, reinterpret_cast<const Weight*>(from));
    if constexpr (sizeof(Weight) == sizeof(float)) {
      return weights;
    } else {
      return hn::PromoteTo(d, weights);
    }
  }
  static HWY_INLINE Vector panel(const float* from) { return hn::Load(Floats(), from); }
  static HWY_INLINE void store(Vector v, float* to) { hn::Store(v, Floats(), to); }
  static HWY_INLINE Vector mul_add(Vector w, Vector x, Vector acc) { return hn::MulAdd(w, x, acc); }
  static const float* input(const InputView& x, int token) { return x.f32 + token * x.f32_stride; }
  static int64_t input_stride(const InputView& x) { return x.f32_stride; }
};

#include "engine/cpu/plain-inl.h"

PlainKernels get_plain() {
  PlainKernels kernels;
  kernels.isa = hwy::TargetName(HWY_TARGET);
  kernels.f32 = plain_kernel<FloatOps<float>>("f32 fma");
  kernels.f16 = plain_kernel<FloatOps<hwy::float16_t>>("f16 to f32 fma");
  kernels.bf16 = plain_kernel<FloatOps<hwy::bfloat16_t>>("bf16 to f32 fma");
  kernels.input = {copy_input, round_input, quantize_input};
  kernels.finish = finish;
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR_AVX3 ",avx512bf16")
namespace ridge::cpu::bf16_dot {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
constexpr int kTileTokens = 6;
template <class Ops>
constexpr size_t kPanelStride = static_cast<size_t>(Ops::kChunk) + 64 / sizeof(typename Ops::Panel);

// Dot products of bf16 pairs in f32, by a CPU instruction; activations are rounded to bf16.
struct PairOps {
  using Panel = uint16_t;
  using Vector = __m512i;
  static constexpr InputKind kInput = InputKind::bf16;
  static constexpr size_t kBytes = 2, kStep = 32;
  static constexpr int64_t kChunk = 1024;  // as many bytes as 512 floats

  static HWY_INLINE Vector load(const std::byte* from) { return _mm512_loadu_si512(from); }
  static HWY_INLINE Vector panel(const uint16_t* from) { return _mm512_load_si512(from); }
  static HWY_INLINE void store(Vector v, uint16_t* to) { _mm512_store_si512(to, v); }
  static HWY_INLINE hn::Vec<Floats> mul_add(Vector w, Vector x, hn::Vec<Floats> acc) {
    return hn::Vec<Floats>{
        _mm512_dpbf16_ps(acc.raw, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x))};
  }
  static const uint16_t* input(const InputView& x, int token) {
    return x.bf16 + token * x.bf16_stride;
  }
  static int64_t input_stride(const InputView& x) { return x.bf16_stride; }
};

#include "engine/cpu/plain-inl.h"

MatmulKernel get_kernel() { return plain_kernel<PairOps>("bf16 dot"); }

}  // namespace ridge::cpu::bf16_dot
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace ridge::cpu {

HWY_EXPORT(get_plain);

std::vector<PlainKernels> plain_kernels() {
  std::vector<PlainKernels> all;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {  // best first
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    all.push_back(HWY_DYNAMIC_DISPATCH(get_plain)());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
#if HWY_ARCH_X86
  if (all[0].isa == std::string_view("AVX3") && __builtin_cpu_supports("avx512bf16")) {
    PlainKernels best = all[0];
    best.isa = "AVX3_BF16";
    best.bf16 = bf16_dot::get_kernel();
    all.insert(all.begin(), best);
  }
#endif
  return all;
}

}  // namespace ridge::cpu
#endif
