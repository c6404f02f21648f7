// GEMM kernels of f32, f16, bf16 and fp8 weights, and the conversions of activations and epilogues
// of all GEMMs. Compiled once per Highway target.
#include <algorithm>
#include <cstring>

#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/matmul_kernels.h"

// Highway 1.0's AVX3_DL is compiled with the VEX forms of VNNI, which not every CPU of that level
// has. Targets beyond AVX3 are therefore named here by the instruction they need. Accumulators are
// arrays of vectors, which SVE's types without a size cannot be elements of: SVE CPUs use NEON.
#define HWY_DISABLED_TARGETS \
  (HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#if defined(__x86_64__)
// Highway has no vectors below SSSE3, which every x86-64 CPU has had since 2006.
#define HWY_BASELINE_TARGETS HWY_SSSE3
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/matmul_plain.cc"  // this file, once per target
#include <hwy/foreach_target.h>                          // must come before highway.h
#include <hwy/highway.h>

#include "base/highway_targets.h"
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

// E4M3 as floats, times 2^-8: moved into an f16, whose exponent has one bit more and a bias of 15
// instead of 7. E4M3's subnormals become f16's, which the conversion to f32 handles exactly.
struct Fp8FloatOps : FloatOps<float> {
  static constexpr int kVectors = 1;
  static constexpr float kFactor = 256;
  static HWY_INLINE void load(const uint8_t* from, Vector (&to)[kVectors]) {
    const hn::Rebind<uint8_t, Floats> bytes;
    const hn::Rebind<uint16_t, Floats> shorts;
    const hn::Rebind<hwy::float16_t, Floats> halves;
    const auto codes = hn::PromoteTo(shorts, hn::LoadU(bytes, from));
    const auto magnitude = hn::ShiftLeft<7>(hn::And(codes, hn::Set(shorts, 0x7f)));
    const auto sign = hn::ShiftLeft<8>(hn::And(codes, hn::Set(shorts, 0x80)));
    to[0] = hn::PromoteTo(Floats(), hn::BitCast(halves, hn::Or(magnitude, sign)));
  }
};

#include "engine/cpu/fp8-inl.h"

PlainKernels get_plain() {
  PlainKernels kernels;
  kernels.isa = hwy::TargetName(HWY_TARGET);
  kernels.f32 = plain_kernel<FloatOps<float>>("f32 fma");
  kernels.f16 = plain_kernel<FloatOps<hwy::float16_t>>("f16 to f32 fma");
  kernels.bf16 = plain_kernel<FloatOps<hwy::bfloat16_t>>("bf16 to f32 fma");
  kernels.fp8 = fp8_kernel<Fp8FloatOps>("fp8 to f32 fma");
  kernels.input = {copy_input, round_input, quantize_input};
  kernels.finish = finish;
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#if HWY_TARGET == HWY_AVX3
namespace ridge::cpu::bf16_dot {

// The magnitude of an E4M3 code as bf16, exactly. Made at compile time: code that the program runs
// on starting must not use the instructions of this target.
constexpr uint16_t bf16_of_e4m3(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  if (code == 0) return 0;
  if (code == 127) return 0x7fc0;  // NaN
  if (exponent > 0) return static_cast<uint16_t>((exponent - 7 + 127) << 7 | mantissa << 4);
  const int top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;  // the mantissa times 2^-9
  return static_cast<uint16_t>((top - 9 + 127) << 7 | (mantissa - (1 << top)) << (7 - top));
}

struct E4m3Tables {
  alignas(64) uint8_t low[128] = {}, high[128] = {};
  constexpr E4m3Tables() {
    for (int code = 0; code < 128; ++code) {
      low[code] = static_cast<uint8_t>(bf16_of_e4m3(code) & 255);
      high[code] = static_cast<uint8_t>(bf16_of_e4m3(code) >> 8);
    }
  }
};
constexpr E4m3Tables kE4m3Tables;

}  // namespace ridge::cpu::bf16_dot
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR_AVX3 ",avx512bf16,avx512vbmi")
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

// E4M3 as bf16, exactly: both bytes from tables of 128, which the instruction indexes by the low
// seven bits of a code.
struct Fp8PairOps : PairOps {
  static constexpr int kVectors = 2;
  static constexpr float kFactor = 1;
  static HWY_INLINE __m512i look_up(const uint8_t (&table)[128], __m512i codes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), codes, _mm512_load_si512(table + 64));
  }
  static HWY_INLINE void load(const uint8_t* from, Vector (&to)[kVectors]) {
    // unpack interleaves within 128-bit lanes, so 64-bit words i and i + 4 are first moved into
    // lane i.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i codes = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from));
    const __m512i low = look_up(kE4m3Tables.low, codes),
                  magnitude = look_up(kE4m3Tables.high, codes);
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i high =
        _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(char(0x80)), kOrAnd);
    to[0] = _mm512_unpacklo_epi8(low, high);
    to[1] = _mm512_unpackhi_epi8(low, high);
  }
};

#include "engine/cpu/fp8-inl.h"

MatmulKernel get_kernel() { return plain_kernel<PairOps>("bf16 dot"); }
MatmulKernel get_fp8_kernel() { return fp8_kernel<Fp8PairOps>("fp8 to bf16 dot"); }

}  // namespace ridge::cpu::bf16_dot
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace ridge::cpu {

HWY_EXPORT(get_plain);

std::vector<PlainKernels> plain_kernels() {
  std::vector<PlainKernels> all;
  for_each_target(HWY_TARGETS, HWY_STATIC_TARGET,
                  [&](int64_t) { all.push_back(HWY_DYNAMIC_DISPATCH(get_plain)()); });
#if HWY_ARCH_X86
  // fp8 needs VBMI, which every CPU with bf16 dot products has but for Cooper Lake.
  if (all[0].isa == std::string_view("AVX3") && __builtin_cpu_supports("avx512bf16") &&
      __builtin_cpu_supports("avx512vbmi")) {
    PlainKernels best = all[0];
    best.isa = "AVX3_BF16";
    best.bf16 = bf16_dot::get_kernel();
    best.fp8 = bf16_dot::get_fp8_kernel();
    all.insert(all.begin(), best);
    if (amx_is_usable()) {
      best.isa = "AVX3_AMX";
      best.bf16 = amx_kernel();
      use_finish_pair(best);
      all.insert(all.begin(), best);
    }
  }
#endif
  return all;
}

}  // namespace ridge::cpu
#endif
