// Compiled once for each target that Highway is asked for; kernel_sets() picks at run time.
#include "measure/cpu/kernels.h"

#include <array>

// SSSE3, SSE4 and the finer flavours of AVX-512 and SVE have the same loads, stores and FMAs as
// those kept.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/cpu/kernels.cc"  // this file, once per target
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "base/highway_targets.h"

HWY_BEFORE_NAMESPACE();
namespace ridge {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// At most 64 bytes, of which kStep floats are eight vectors: SVE may have more.
template <typename T>
using Lanes = hn::CappedTag<T, 64 / sizeof(T)>;
using Floats = Lanes<float>;
using Words = Lanes<uint32_t>;

// The compiler must assume that the arrays change between two passes.
HWY_INLINE void keep_passes_apart() { asm volatile("" ::: "memory"); }

// Eight independent sums: loads come two or three a clock, an integer addition takes one.
uint32_t read(const float* a, size_t count, long repeats) {
  const Words d;
  const size_t lanes = hn::Lanes(d);
  const uint32_t* HWY_RESTRICT words = reinterpret_cast<const uint32_t*>(a);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t i = 0; i < count; i += 8 * lanes) {
      s0 = hn::Add(s0, hn::Load(d, words + i));
      s1 = hn::Add(s1, hn::Load(d, words + i + lanes));
      s2 = hn::Add(s2, hn::Load(d, words + i + 2 * lanes));
      s3 = hn::Add(s3, hn::Load(d, words + i + 3 * lanes));
      s4 = hn::Add(s4, hn::Load(d, words + i + 4 * lanes));
      s5 = hn::Add(s5, hn::Load(d, words + i + 5 * lanes));
      s6 = hn::Add(s6, hn::Load(d, words + i + 6 * lanes));
      s7 = hn::Add(s7, hn::Load(d, words + i + 7 * lanes));
    }
    keep_passes_apart();
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <bool kStream>
HWY_INLINE void put(hn::Vec<Floats> v, float* HWY_RESTRICT to) {
  const Floats d;
  if constexpr (kStream) {
    hn::Stream(v, d, to);
  } else {
    hn::Store(v, d, to);
  }
}

// Streamed stores wait in buffers: a pass is over when they have drained.
template <bool kStream>
HWY_INLINE void end_pass() {
  if constexpr (kStream) hwy::FlushStream();
  keep_passes_apart();
}

template <bool kStream>
void write(float* HWY_RESTRICT a, size_t count, long repeats, float value) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const auto v = hn::Set(d, value);
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t i = 0; i < count; i += 4 * lanes) {
      put<kStream>(v, a + i);
      put<kStream>(v, a + i + lanes);
      put<kStream>(v, a + i + 2 * lanes);
      put<kStream>(v, a + i + 3 * lanes);
    }
    end_pass<kStream>();
  }
}

template <bool kStream>
void copy(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, size_t count, long repeats) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t i = 0; i < count; i += 4 * lanes) {
      const auto v0 = hn::Load(d, from + i), v1 = hn::Load(d, from + i + lanes);
      const auto v2 = hn::Load(d, from + i + 2 * lanes), v3 = hn::Load(d, from + i + 3 * lanes);
      put<kStream>(v0, to + i);
      put<kStream>(v1, to + i + lanes);
      put<kStream>(v2, to + i + 2 * lanes);
      put<kStream>(v3, to + i + 3 * lanes);
    }
    end_pass<kStream>();
  }
}

void update(float* HWY_RESTRICT a, size_t count, long repeats, float factor) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t i = 0; i < count; i += 4 * lanes) {
      const auto v0 = hn::Load(d, a + i), v1 = hn::Load(d, a + i + lanes);
      const auto v2 = hn::Load(d, a + i + 2 * lanes), v3 = hn::Load(d, a + i + 3 * lanes);
      hn::Store(hn::Mul(v0, f), d, a + i);
      hn::Store(hn::Mul(v1, f), d, a + i + lanes);
      hn::Store(hn::Mul(v2, f), d, a + i + 2 * lanes);
      hn::Store(hn::Mul(v3, f), d, a + i + 3 * lanes);
    }
    end_pass<false>();
  }
}

template <bool kStream>
void triad(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* HWY_RESTRICT c,
           size_t count, long repeats, float factor) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t i = 0; i < count; i += 2 * lanes) {
      const size_t j = i + lanes;
      put<kStream>(hn::MulAdd(f, hn::Load(d, c + i), hn::Load(d, b + i)), a + i);
      put<kStream>(hn::MulAdd(f, hn::Load(d, c + j), hn::Load(d, b + j)), a + j);
    }
    end_pass<kStream>();
  }
}

// x = x/2 + 1 has the fixed point 2 and no denormals on the way. Twelve chains: two pipes times a
// latency of four need eight, four more hide the scheduler's slips, and with the two constants they
// still fit the 16 registers of AVX2.
template <typename T>
double fma(long repeats) {
  const Lanes<T> d;
  volatile T half_in = T{0.5}, one_in = T{1};  // not known to the compiler
  const auto half = hn::Set(d, half_in), one = hn::Set(d, one_in);
  // Each chain starts elsewhere: equal chains are one chain to the compiler, which then runs it
  // once (this kernel's first version showed three times the possible peak; the band caught it).
  const auto start = [&](int chain) { return hn::Set(d, half_in + static_cast<T>(chain)); };
  auto x0 = start(0), x1 = start(1), x2 = start(2), x3 = start(3), x4 = start(4), x5 = start(5);
  auto x6 = start(6), x7 = start(7), x8 = start(8), x9 = start(9), x10 = start(10), x11 = start(11);
  for (long i = 0; i < repeats; ++i) {
    for (int unroll = 0; unroll < 8; ++unroll) {
      x0 = hn::MulAdd(x0, half, one);
      x1 = hn::MulAdd(x1, half, one);
      x2 = hn::MulAdd(x2, half, one);
      x3 = hn::MulAdd(x3, half, one);
      x4 = hn::MulAdd(x4, half, one);
      x5 = hn::MulAdd(x5, half, one);
      x6 = hn::MulAdd(x6, half, one);
      x7 = hn::MulAdd(x7, half, one);
      x8 = hn::MulAdd(x8, half, one);
      x9 = hn::MulAdd(x9, half, one);
      x10 = hn::MulAdd(x10, half, one);
      x11 = hn::MulAdd(x11, half, one);
    }
  }
  const auto sum = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)),
                           hn::Add(hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)),
                                   hn::Add(hn::Add(x8, x9), hn::Add(x10, x11))));
  const double lanes = static_cast<double>(hn::Lanes(d));
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum))) / 12 / lanes;
}

const char* isa_name() {
  switch (HWY_TARGET) {
    case HWY_AVX3:
      return "AVX-512";
    default:
      return hwy::TargetName(HWY_TARGET);
  }
}

KernelSet get_set() {
  return {isa_name(),   static_cast<int>(hn::Lanes(Floats()) * sizeof(float)),
          read,         write<false>,
          write<true>,  copy<false>,
          copy<true>,   update,
          triad<false>, triad<true>,
          fma<float>,   fma<double>};
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridge {

HWY_EXPORT(get_set);

namespace {
constexpr double kChains = 12, kUnroll = 8, kOpsPerFma = 2;
}

double KernelSet::fma32_ops() const {
  return kChains * kUnroll * kOpsPerFma * vector_bytes / sizeof(float);
}
double KernelSet::fma64_ops() const {
  return kChains * kUnroll * kOpsPerFma * vector_bytes / sizeof(double);
}

const std::vector<KernelSet>& kernel_sets() {
  static const std::vector<KernelSet> sets = [] {
    std::vector<KernelSet> all;
    for_each_target(HWY_TARGETS, HWY_STATIC_TARGET,
                    [&](int64_t) { all.push_back(HWY_DYNAMIC_DISPATCH(get_set)()); });
    return all;
  }();
  return sets;
}

}  // namespace ridge
#endif
