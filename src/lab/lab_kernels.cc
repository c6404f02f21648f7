// Compiled once per Highway target; the best target is chosen at run time.
#include "lab/lab_kernels.h"

#include <algorithm>
#include <cmath>

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lab/lab_kernels.cc"  // this file, once per target
// clang-format off
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ridge::lab_kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using V = hn::Vec<Floats>;

// The compiler must assume that the array changes between two passes.
HWY_INLINE void separate_passes() { asm volatile("" ::: "memory"); }

// Independent chains of multiply-adds: two FMA pipes of latency 4 need eight. They and the factor
// take 9 of AVX2's 16 registers; the operands are folded into the instructions' loads.
constexpr size_t kChains = 8;

template <int kFmas>
double fma_pass(const float* HWY_RESTRICT a, size_t count, long repeats) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const V half = hn::Set(d, 0.5f);
  V sum[kChains];
  for (V& s : sum) s = hn::Set(d, 2.0f);
  for (long pass = 0; pass < repeats; ++pass) {
    for (size_t i = 0; i < count; i += kChains * lanes) {
      HWY_UNROLL(4)
      for (int k = 0; k < kFmas; ++k) {
        for (size_t j = 0; j < kChains; ++j) {
          sum[j] = hn::MulAdd(sum[j], half, hn::Load(d, a + i + j * lanes));
        }
      }
    }
    separate_passes();
  }
  double total = 0;
  for (const V& s : sum) total += double(hn::GetLane(hn::SumOfLanes(d, s)));
  return total / double(kChains * lanes);
}

// One addition for every kPer floats; the others are only combined bit by bit. Or of equal
// patterns is that pattern.
template <size_t kPer>
double sparse_pass(const float* HWY_RESTRICT a, size_t count, long repeats) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kSums = 8;
  double total = 0;
  for (long pass = 0; pass < repeats; ++pass) {
    V sum[kSums];
    for (V& s : sum) s = hn::Zero(d);
    for (size_t i = 0; i < count; i += kSums * lanes) {
      for (size_t j = 0; j < kSums; j += kPer) {
        V x = hn::Load(d, a + i + j * lanes);
        for (size_t p = 1; p < kPer; ++p) x = hn::Or(x, hn::Load(d, a + i + (j + p) * lanes));
        sum[j] = hn::Add(sum[j], x);
      }
    }
    for (const V& s : sum) total += double(hn::GetLane(hn::SumOfLanes(d, s)));
    separate_passes();
  }
  return total;
}

double turn(const float* a, size_t count, long repeats, int fmas, int group) {
  if (fmas == 0) {
    return group == 4   ? sparse_pass<4>(a, count, repeats)
           : group == 2 ? sparse_pass<2>(a, count, repeats)
                        : sparse_pass<1>(a, count, repeats);
  }
  switch (fmas) {
    case 1:
      return fma_pass<1>(a, count, repeats);
    case 2:
      return fma_pass<2>(a, count, repeats);
    case 4:
      return fma_pass<4>(a, count, repeats);
    case 8:
      return fma_pass<8>(a, count, repeats);
    case 16:
      return fma_pass<16>(a, count, repeats);
    case 32:
      return fma_pass<32>(a, count, repeats);
    case 64:
      return fma_pass<64>(a, count, repeats);
    default:
      return fma_pass<128>(a, count, repeats);
  }
}

// Eight vectors at a time, so that the chains of different elements overlap.
void chain(float* to, const float* from, size_t count, int times) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const V half = hn::Set(d, 0.5f), one = hn::Set(d, 1.0f);
  for (size_t i = 0; i < count; i += kChains * lanes) {
    V x[kChains];
    for (size_t j = 0; j < kChains; ++j) x[j] = hn::Load(d, from + i + j * lanes);
    for (int k = 0; k < times; ++k) {
      for (size_t j = 0; j < kChains; ++j) x[j] = hn::MulAdd(x[j], half, one);
    }
    for (size_t j = 0; j < kChains; ++j) hn::Store(x[j], d, to + i + j * lanes);
  }
}

float sum_of_chain(const float* from, size_t count, int times) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const V half = hn::Set(d, 0.5f), one = hn::Set(d, 1.0f);
  V sum[kChains];
  for (V& s : sum) s = hn::Zero(d);
  for (size_t i = 0; i < count; i += kChains * lanes) {
    V x[kChains];
    for (size_t j = 0; j < kChains; ++j) x[j] = hn::Load(d, from + i + j * lanes);
    for (int k = 0; k < times; ++k) {
      for (size_t j = 0; j < kChains; ++j) x[j] = hn::MulAdd(x[j], half, one);
    }
    for (size_t j = 0; j < kChains; ++j) sum[j] = hn::Add(sum[j], x[j]);
  }
  float total = 0;
  for (const V& s : sum) total += hn::GetLane(hn::SumOfLanes(d, s));
  return total;
}

void sum_of_two(float* to, const float* a, const float* b, size_t count) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < count; i += 4 * lanes) {
    for (size_t j = 0; j < 4 * lanes; j += lanes) {
      hn::Store(hn::Add(hn::Load(d, a + i + j), hn::Load(d, b + i + j)), d, to + i + j);
    }
  }
}

void silu_pass(float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, size_t count) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const V one = hn::Set(d, 1.0f);
  for (size_t i = 0; i < count; i += lanes) {
    const V x = hn::Load(d, gate + i);
    const V z = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 87.0f));
    const V silu = hn::Div(x, hn::Add(one, hn::Exp(d, hn::Neg(z))));
    hn::Store(hn::Mul(silu, hn::Load(d, up + i)), d, gate + i);
  }
}

HWY_INLINE V silu_of(V x) {
  const Floats d;
  const V z = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 87.0f));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Neg(z))));
}

// 1 / rms of a row.
HWY_INLINE V inverse_rms(const float* row, size_t width) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (size_t i = 0; i < width; i += 4 * lanes) {
    for (size_t j = 0; j < 4; ++j) {
      const V x = hn::Load(d, row + i + j * lanes);
      sum[j] = hn::MulAdd(x, x, sum[j]);
    }
  }
  const V all = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  const float mean = hn::GetLane(hn::SumOfLanes(d, all)) / float(width);
  return hn::Set(d, 1 / std::sqrt(mean + 1e-5f));
}

void norm_pass(float* to, const float* from, size_t count, size_t width) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  for (size_t row = 0; row < count; row += width) {
    const V scale = inverse_rms(from + row, width);
    for (size_t i = row; i < row + width; i += lanes) {
      hn::Store(hn::Mul(hn::Load(d, from + i), scale), d, to + i);
    }
  }
}

void multiply_pass(float* HWY_RESTRICT x, const float* HWY_RESTRICT y, size_t count) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < count; i += lanes) {
    hn::Store(hn::Mul(hn::Load(d, x + i), hn::Load(d, y + i)), d, x + i);
  }
}

void silu_alone(float* x, size_t count) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < count; i += lanes) hn::Store(silu_of(hn::Load(d, x + i)), d, x + i);
}

void fused_block(float* HWY_RESTRICT x, const float* HWY_RESTRICT y, size_t count, size_t width) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  for (size_t row = 0; row < count; row += width) {
    const V scale = inverse_rms(x + row, width);
    for (size_t i = row; i < row + width; i += lanes) {
      const V old = hn::Load(d, x + i);
      const V h = silu_of(hn::Mul(hn::Mul(old, scale), hn::Load(d, y + i)));
      hn::Store(hn::Add(old, h), d, x + i);
    }
  }
}

void softmax(float* row, size_t count, float scale) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  V most = hn::Set(d, -3e38f), most2 = most;
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    most = hn::Max(most, hn::LoadU(d, row + i));
    most2 = hn::Max(most2, hn::LoadU(d, row + i + lanes));
  }
  float peak = hn::GetLane(hn::MaxOfLanes(d, hn::Max(most, most2)));
  for (; i < count; ++i) peak = std::max(peak, row[i]);
  const V factor = hn::Set(d, scale), offset = hn::Set(d, -scale * peak);
  V sum = hn::Zero(d), sum2 = sum;
  for (i = 0; i + 2 * lanes <= count; i += 2 * lanes) {
    const V e = hn::Exp(d, hn::MulAdd(hn::LoadU(d, row + i), factor, offset));
    const V f = hn::Exp(d, hn::MulAdd(hn::LoadU(d, row + i + lanes), factor, offset));
    hn::StoreU(e, d, row + i);
    hn::StoreU(f, d, row + i + lanes);
    sum = hn::Add(sum, e);
    sum2 = hn::Add(sum2, f);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, sum2)));
  for (; i < count; ++i) {
    row[i] = std::exp(scale * (row[i] - peak));
    total += row[i];
  }
  const V inverse = hn::Set(d, 1 / total);
  for (i = 0; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), inverse), d, row + i);
  }
  for (; i < count; ++i) row[i] /= total;
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::lab_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridge::lab_kernels {

HWY_EXPORT(turn);
HWY_EXPORT(chain);
HWY_EXPORT(sum_of_chain);
HWY_EXPORT(sum_of_two);
HWY_EXPORT(silu_pass);
HWY_EXPORT(norm_pass);
HWY_EXPORT(multiply_pass);
HWY_EXPORT(silu_alone);
HWY_EXPORT(fused_block);
HWY_EXPORT(softmax);

double turn_intensity(const float* a, size_t count, long repeats, int fmas, int group) {
  return HWY_DYNAMIC_DISPATCH(turn)(a, count, repeats, fmas, group);
}
void apply_chain(float* to, const float* from, size_t count, int times) {
  HWY_DYNAMIC_DISPATCH(chain)(to, from, count, times);
}
float chain_sum(const float* from, size_t count, int times) {
  return HWY_DYNAMIC_DISPATCH(sum_of_chain)(from, count, times);
}
void add(float* to, const float* a, const float* b, size_t count) {
  HWY_DYNAMIC_DISPATCH(sum_of_two)(to, a, b, count);
}
void silu_times(float* gate, const float* up, size_t count) {
  HWY_DYNAMIC_DISPATCH(silu_pass)(gate, up, count);
}
void norm_rows(float* to, const float* from, size_t count, size_t width) {
  HWY_DYNAMIC_DISPATCH(norm_pass)(to, from, count, width);
}
void multiply(float* x, const float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(multiply_pass)(x, y, count);
}
void silu(float* x, size_t count) { HWY_DYNAMIC_DISPATCH(silu_alone)(x, count); }
void norm_multiply_silu_add(float* x, const float* y, size_t count, size_t width) {
  HWY_DYNAMIC_DISPATCH(fused_block)(x, y, count, width);
}
void softmax_row(float* row, size_t count, float scale) {
  HWY_DYNAMIC_DISPATCH(softmax)(row, count, scale);
}

}  // namespace ridge::lab_kernels
#endif  // HWY_ONCE
