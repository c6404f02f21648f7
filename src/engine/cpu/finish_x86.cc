// The epilogue of 32 rows with AVX-512 BF16, for GEMMs by AMX tiles: the bits of epilogue-inl.h's
// finish(), except that results below 2^-126 become zero in bf16, as which tiles take them in any
// case. Between two tile products the epilogue is not hidden: without the branches for biases and
// partial groups, and with two vectors rounded at once, gate_up of 512 tokens takes a tenth less.
#include "engine/cpu/matmul_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace ridge::cpu {
namespace {

#define RIDGE_FINISH_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// GCC 12 warns of the forms without a mask.
constexpr __mmask16 kAll = 0xffff;

// exp2_for_bf16() of exp-inl.h.
RIDGE_FINISH_TARGET inline __m512 exp2_for_bf16(__m512 t) {
  const __m512 shift = _mm512_set1_ps(12582912.0f);
  const __m512 shifted = _mm512_add_ps(t, shift);
  const __m512 r = _mm512_sub_ps(t, _mm512_sub_ps(shifted, shift));
  __m512 y = _mm512_set1_ps(0.00965671055f);
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.05583828315f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.24022530019f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.69313675165f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
  const __m512i n = _mm512_maskz_slli_epi32(kAll, reinterpret_cast<__m512i>(shifted), 23);
  return reinterpret_cast<__m512>(_mm512_add_epi32(reinterpret_cast<__m512i>(y), n));
}

// gate_times_up_for_bf16() of epilogue-inl.h with SiLU.
RIDGE_FINISH_TARGET inline __m512 silu_times_up(const float* gates, const float* ups) {
  const __m512 gate = _mm512_load_ps(gates), up = _mm512_load_ps(ups);
  const __m512 one = _mm512_set1_ps(1.0f), limit = _mm512_set1_ps(125.0f);
  __m512 t = _mm512_mul_ps(gate, _mm512_set1_ps(-1.44269504f));
  t = _mm512_maskz_max_ps(kAll, t, _mm512_set1_ps(-125.0f));
  t = _mm512_maskz_min_ps(kAll, t, limit);
  const __m512 divisor = _mm512_add_ps(exp2_for_bf16(t), one);
  const __m512 estimate = _mm512_maskz_rcp14_ps(kAll, divisor);
  const __m512 missing = _mm512_fnmadd_ps(divisor, estimate, one);
  return _mm512_mul_ps(_mm512_mul_ps(gate, up), _mm512_fmadd_ps(estimate, missing, estimate));
}

RIDGE_FINISH_TARGET inline void store_bf16(__m512 low, __m512 high, uint16_t* to) {
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

RIDGE_FINISH_TARGET void finish_pair(const Epilogue& e) {
  const float *sums = e.sums, *const other = sums + e.group_stride, *up = e.up;
  const int64_t between = other - sums;
  const bool streams =
      e.streams && reinterpret_cast<uintptr_t>(e.y) % 64 == 0 && e.stride % 16 == 0;
  float* y = e.y;
  uint16_t* half = e.bf16;
  for (int t = 0; t < e.tokens; ++t, sums += kGroup) {
    if (half) {
      if (up) {
        store_bf16(silu_times_up(sums, up), silu_times_up(sums + between, up + between), half);
        up += kGroup;
      } else {
        store_bf16(_mm512_load_ps(sums), _mm512_load_ps(sums + between), half);
      }
      half += e.stride;
      continue;
    }
    const __m512 low = _mm512_load_ps(sums), high = _mm512_load_ps(sums + between);
    if (e.accumulate) {
      _mm512_storeu_ps(y, _mm512_add_ps(_mm512_loadu_ps(y), low));
      _mm512_storeu_ps(y + kGroup, _mm512_add_ps(_mm512_loadu_ps(y + kGroup), high));
    } else if (streams) {
      _mm512_stream_ps(y, low);
      _mm512_stream_ps(y + kGroup, high);
    } else {
      _mm512_storeu_ps(y, low);
      _mm512_storeu_ps(y + kGroup, high);
    }
    y += e.stride;
  }
}

}  // namespace

void use_finish_pair(PlainKernels& kernels) { kernels.finish_pair = finish_pair; }

}  // namespace ridge::cpu

#endif
