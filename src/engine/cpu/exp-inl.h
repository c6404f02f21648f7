// 2^t for results that are rounded to bf16. Included once per Highway target
// (hwy/foreach_target.h).
#if defined(RIDGE_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGE_EXP_INL_H_
#undef RIDGE_EXP_INL_H_
#else
#define RIDGE_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// For |t| <= 126, with a relative error below 8e-6: 2^n 2^r with |r| <= 1/2 and a polynomial that
// interpolates at Chebyshev's nodes. Adding 1.5 x 2^23 rounds to an integer and leaves it in the
// lowest bits, without the care for overflow of a conversion.
template <class D, class V>
HWY_INLINE V exp2_for_bf16(D d, V t) {
  const hn::RebindToSigned<D> ints;
  const V shift = hn::Set(d, 12582912.0f);
  const V shifted = hn::Add(t, shift);
  const V r = hn::Sub(t, hn::Sub(shifted, shift));
  V y = hn::Set(d, 0.00965671055f);
  y = hn::MulAdd(y, r, hn::Set(d, 0.05583828315f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.24022530019f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.69313675165f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  const auto n = hn::ShiftLeft<23>(hn::BitCast(ints, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(ints, y), n));
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#endif
