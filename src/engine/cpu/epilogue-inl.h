// Prologue and epilogue of the GEMMs: conversion of the activations before; bias, gate and residual
// after. Included once per Highway target (hwy/foreach_target.h).
#if defined(RIDGE_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGE_EPILOGUE_INL_H_
#undef RIDGE_EPILOGUE_INL_H_
#else
#define RIDGE_EPILOGUE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "engine/cpu/exp-inl.h"
#include "engine/cpu/matmul_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline void copy_input(const float* x, int64_t columns, int64_t padded, float* to) {
  std::copy_n(x, columns, to);
  std::fill(to + columns, to + padded, 0.0f);
}

// Stores bf16, rounded to nearest even. For NaN the quiet bit is set, because rounding could clear
// the payload.
template <class D, class V>
HWY_INLINE void store_bf16(D, V value, uint16_t* to) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<uint16_t, D> halves;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto nearest = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(words, 0x40u));
  const auto number = hn::RebindMask(words, hn::Eq(value, value));
  const auto rounded = hn::IfThenElse(number, nearest, quiet);
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(hn::RebindToSigned<D>(), rounded)), halves, to);
}

inline void round_input(const float* x, int64_t columns, int64_t padded, uint16_t* to) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto round = [&](const float* from, uint16_t* at)
                         HWY_ATTR { store_bf16(d, hn::LoadU(d, from), at); };
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) round(x + i, to + i);
  if (i < columns) {
    float rest[16] = {};
    uint16_t rounded[16];
    std::copy(x + i, x + columns, rest);
    round(rest, rounded);
    std::copy_n(rounded, columns - i, to + i);
  }
  std::fill(to + columns, to + padded, uint16_t{0});
}

// Quantizes blocks of 32: the largest magnitude becomes 127.
inline void quantize_input(const float* HWY_RESTRICT x, int64_t columns,
                           InputBlock* HWY_RESTRICT blocks, int16_t* HWY_RESTRICT pairs) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const size_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < columns / kBlock; ++i, x += kBlock) {
    InputBlock& to = blocks[i];
    auto largest = hn::Zero(d);
    for (size_t k = 0; k < kBlock; k += lanes) {
      largest = hn::Max(largest, hn::Abs(hn::LoadU(d, x + k)));
    }
    const float peak = hn::GetLane(hn::MaxOfLanes(d, largest));
    const bool zero = !(peak > 1e-30f);  // below this 127 / peak may be infinite
    const auto inverse = hn::Set(d, zero ? 0.0f : 127 / peak);
    int32_t halves[2];
    for (size_t half = 0; half < 2; ++half) {
      auto sum = hn::Zero(d32);
      for (size_t k = half * 16; k < half * 16 + 16; k += lanes) {
        // The clamp only affects NaN and infinity, which convert to the smallest integer.
        const auto nearest = hn::NearestInt(hn::Mul(hn::LoadU(d, x + k), inverse));
        const auto q = hn::Max(hn::Min(nearest, hn::Set(d32, 127)), hn::Set(d32, -127));
        sum = hn::Add(sum, q);
        hn::StoreU(hn::DemoteTo(d8, q), d8, to.q + k);
      }
      halves[half] = hn::GetLane(hn::SumOfLanes(d32, sum));
    }
    const int32_t sum = halves[0] + halves[1];
    to.scale = zero ? 0 : peak / 127;
    to.scaled_sum = to.scale * static_cast<float>(sum);
    to.start_8 = -8 * sum;
    to.start_16 = -16 * sum;
    to.start_32[0] = -32 * halves[0];
    to.start_32[1] = -32 * halves[1];
    to.start_128 = -128 * sum;
    if (pairs == nullptr) continue;
    for (size_t k = 0; k < kBlock; k += 4, pairs += 4) {
      pairs[0] = to.q[k];
      pairs[1] = to.q[k + 2];
      pairs[2] = to.q[k + 1];
      pairs[3] = to.q[k + 3];
    }
  }
}

// x / (1 + e^-z): SiLU with z = x; GELU's tanh form uses (1 + tanh u) / 2 = 1 / (1 + e^-2u).
template <class D, class V>
HWY_INLINE V sigmoid_argument(D d, V x, Activation activation) {
  if (activation != Activation::gelu_tanh) return x;
  const V cube = hn::Mul(hn::Mul(x, x), x);
  return hn::Mul(hn::Set(d, 2 * 0.7978845608f), hn::MulAdd(hn::Set(d, 0.044715f), cube, x));
}

// Highway's Exp is within one unit in the last place; z is clamped to where e^-z is finite.
template <class D, class V>
HWY_INLINE V activate(D d, V x, Activation activation) {
  V z = sigmoid_argument(d, x, activation);
  z = hn::Min(hn::Max(z, hn::Set(d, -87.0f)), hn::Set(d, 87.0f));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Neg(z))));
}

// gpt-oss: both clamped, g sigmoid(1.702 g) (u + 1).
template <class D, class V>
HWY_INLINE V gate_times_up(D d, V gate, V up, Activation activation) {
  if (activation != Activation::clamped_swiglu) return hn::Mul(activate(d, gate, activation), up);
  const V limit = hn::Set(d, kSwigluLimit), one = hn::Set(d, 1.0f);
  const V g = hn::Min(gate, limit), u = hn::Max(hn::Min(up, limit), hn::Neg(limit));
  const V z = hn::Max(hn::Mul(hn::Set(d, kSwigluSlope), g), hn::Set(d, -87.0f));
  const V glu = hn::Div(g, hn::Add(one, hn::Exp(d, hn::Neg(z))));
  return hn::Mul(glu, hn::Add(u, one));
}

// The same for a result that is rounded to bf16, in half the instructions: 2^t to 8e-6, and the
// reciprocal by one Newton step from an estimate of 14 bits (AVX-512), 12 (AVX2) or 8 (NEON), so to
// 2^-16 or better. A division of 16 floats alone takes 16 clocks.
template <class D, class V>
HWY_INLINE V gate_times_up_for_bf16(D d, V gate, V up, Activation activation) {
  if (activation == Activation::clamped_swiglu) return gate_times_up(d, gate, up, activation);
  const V limit = hn::Set(d, 125.0f);
  V t = hn::Mul(sigmoid_argument(d, gate, activation), hn::Set(d, -1.44269504f));
  t = hn::Min(hn::Max(t, hn::Neg(limit)), limit);
  const V divisor = hn::Add(exp2_for_bf16(d, t), hn::Set(d, 1.0f));
  const V estimate = hn::ApproximateReciprocal(divisor);
  const V missing = hn::NegMulAdd(divisor, estimate, hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(gate, up), hn::MulAdd(estimate, missing, estimate));
}

// Processes all groups of a token before the next token: the tokens' rows of y are far apart.
template <bool kGated, bool kBf16>
inline void finish_rows(const Epilogue& e) {
  const hn::CappedTag<float, kGroup> d;
  const size_t lanes = hn::Lanes(d);
  alignas(64) float rest[kGroup] = {}, rest_bias[kGroup] = {}, rest_up[kGroup] = {};
  alignas(64) uint16_t rest_half[kGroup] = {};
  for (int t = 0; t < e.tokens; ++t) {
    for (int first = 0; first < e.rows; first += kGroup) {
      const int rows = std::min(kGroup, e.rows - first);
      const bool whole = rows == kGroup;
      float* const y = kBf16 ? nullptr : e.y + t * e.stride + first;
      float* const to = whole ? y : rest;
      uint16_t* const half = kBf16 ? e.bf16 + t * e.stride + first : nullptr;
      const float* bias = e.bias ? e.bias + first : nullptr;
      if (!kBf16 && !whole && e.accumulate) std::copy_n(y, rows, rest);
      if (!whole && bias) bias = std::copy_n(bias, rows, rest_bias) - rows;
      const float* up_bias = kGated && e.up_bias ? e.up_bias + first : nullptr;
      if (!whole && up_bias) up_bias = std::copy_n(up_bias, rows, rest_up) - rows;
      const int64_t at = first / kGroup * e.group_stride + t * kGroup;
      for (size_t r = 0; r < kGroup; r += lanes) {
        auto v = hn::Load(d, e.sums + at + r);
        if (bias) v = hn::Add(v, hn::LoadU(d, bias + r));
        if constexpr (kGated) {
          auto up = hn::Load(d, e.up + at + r);
          if (up_bias) up = hn::Add(up, hn::LoadU(d, up_bias + r));
          v = kBf16 ? gate_times_up_for_bf16(d, v, up, e.activation)
                    : gate_times_up(d, v, up, e.activation);
        }
        if constexpr (kBf16) {
          store_bf16(d, v, (whole ? half : rest_half) + r);
          continue;
        }
        if (e.accumulate) v = hn::Add(hn::LoadU(d, to + r), v);
        if (e.streams && whole && reinterpret_cast<uintptr_t>(y) % 64 == 0) {
          hn::Stream(v, d, to + r);
        } else {
          hn::StoreU(v, d, to + r);
        }
      }
      if (kBf16 && !whole) std::copy_n(rest_half, rows, half);
      if (!kBf16 && !whole) std::copy_n(rest, rows, y);
    }
  }
}

inline void finish(const Epilogue& e) {
  if (e.up) return e.bf16 ? finish_rows<true, true>(e) : finish_rows<true, false>(e);
  return e.bf16 ? finish_rows<false, true>(e) : finish_rows<false, false>(e);
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#endif
