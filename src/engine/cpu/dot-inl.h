// Dot products of unsigned weights and signed activations, four columns to each 32-bit lane, with
// the best instruction available. Only this file depends on which instruction that is.
//
// No include guard: included once in every namespace that is compiled for another instruction set.
// A Dot has
//   Weight      16 or fewer rows of a chunk: widened once, used for many tokens
//   kWide       bytes of a Weight per byte of a chunk
//   kRun        chunks that may be added before Part must be flushed into 32 bits
//   kTokens     tokens in a tile
//   widen, load, store   bytes to a Weight; a Weight from and to a panel
//   input                four activations, broadcast
//   first, next, flush   Part = w x; Part += w x; 32 bits += Part
// With kDirect there is no Part: add(acc, w, x).

using Ints = hn::ScalableTag<int32_t>;
using Shorts = hn::ScalableTag<int16_t>;
using Bytes = hn::ScalableTag<uint8_t>;

HWY_INLINE hn::Vec<Ints> broadcast(const void* four) {
  int32_t bits;
  memcpy(&bits, four, sizeof bits);
  return hn::Set(Ints(), bits);
}

#if defined(RIDGE_DOT_VNNI)

#if HWY_MAX_BYTES == 64
HWY_INLINE hn::Vec<Ints> dpbusd(hn::Vec<Ints> acc, hn::Vec<Bytes> w, hn::Vec<Ints> x) {
  return hn::Vec<Ints>{_mm512_dpbusd_epi32(acc.raw, w.raw, x.raw)};
}
#else
HWY_INLINE hn::Vec<Ints> dpbusd(hn::Vec<Ints> acc, hn::Vec<Bytes> w, hn::Vec<Ints> x) {
  return hn::Vec<Ints>{_mm256_dpbusd_avx_epi32(acc.raw, w.raw, x.raw)};
}
#endif

struct Vnni {
  using Weight = hn::Vec<Bytes>;
  static constexpr bool kDirect = true, kPairs = false;
  static constexpr int kWide = 1, kRun = 1, kTokens = HWY_MAX_BYTES == 64 ? 6 : 2;
  static HWY_INLINE Weight widen(hn::Vec<Bytes> w) { return w; }
  static HWY_INLINE Weight load(const uint8_t* from) { return hn::Load(Bytes(), from); }
  static HWY_INLINE void store(Weight w, uint8_t* to) { hn::Store(w, Bytes(), to); }
  static HWY_INLINE hn::Vec<Ints> input(const InputBlock& x, const int16_t*, int chunk) {
    return broadcast(x.q + 4 * chunk);
  }
  static HWY_INLINE hn::Vec<Ints> add(hn::Vec<Ints> acc, Weight w, hn::Vec<Ints> x) {
    return dpbusd(acc, w, x);
  }
};
template <int kBits>
using Dot = Vnni;

#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#if HWY_MAX_BYTES == 64
HWY_INLINE hn::Vec<Shorts> maddubs(hn::Vec<Bytes> w, hn::Vec<Ints> x) {
  return hn::Vec<Shorts>{_mm512_maddubs_epi16(w.raw, x.raw)};
}
HWY_INLINE hn::Vec<Ints> madd(hn::Vec<Shorts> a, hn::Vec<Shorts> b) {
  return hn::Vec<Ints>{_mm512_madd_epi16(a.raw, b.raw)};
}
#else
HWY_INLINE hn::Vec<Shorts> maddubs(hn::Vec<Bytes> w, hn::Vec<Ints> x) {
  return hn::Vec<Shorts>{_mm256_maddubs_epi16(w.raw, x.raw)};
}
HWY_INLINE hn::Vec<Ints> madd(hn::Vec<Shorts> a, hn::Vec<Shorts> b) {
  return hn::Vec<Ints>{_mm256_madd_epi16(a.raw, b.raw)};
}
#endif

// Up to 6 bits: two products are summed in 16 bits, and kRun such pairs are accumulated there. With
// |x| <= 128 the largest sums are 15 x 128 x 2 x 8 = 30720, 31 x 128 x 2 x 4 = 31744, 63 x 128 x 2
// x 2 = 32256: all below 32768.
template <int kBits>
struct ShortSums {
  using Weight = hn::Vec<Bytes>;
  using Part = hn::Vec<Shorts>;
  static constexpr bool kDirect = false, kPairs = false;
  static constexpr int kWide = 1, kRun = 128 >> kBits, kTokens = HWY_MAX_BYTES == 64 ? 6 : 3;
  static_assert(((1 << kBits) - 1) * 128 * 2 * kRun < 32768);
  static HWY_INLINE Weight widen(hn::Vec<Bytes> w) { return w; }
  static HWY_INLINE Weight load(const uint8_t* from) { return hn::Load(Bytes(), from); }
  static HWY_INLINE void store(Weight w, uint8_t* to) { hn::Store(w, Bytes(), to); }
  static HWY_INLINE hn::Vec<Ints> input(const InputBlock& x, const int16_t*, int chunk) {
    return broadcast(x.q + 4 * chunk);
  }
  static HWY_INLINE Part first(Weight w, hn::Vec<Ints> x) { return maddubs(w, x); }
  static HWY_INLINE Part next(Part part, Weight w, hn::Vec<Ints> x) {
    return hn::Add(part, maddubs(w, x));
  }
  static HWY_INLINE hn::Vec<Ints> flush(hn::Vec<Ints> acc, Part part) {
    return hn::Add(acc, madd(part, hn::Set(Shorts(), 1)));
  }
};

// 8 bits: 255 x 127 x 2 does not fit in 16 bits, so bytes are widened to 16 bits: columns 0 and 2
// of a chunk in one vector, 1 and 3 in another (a mask and a shift, nothing crosses lanes).
struct ShortPairs {
  struct Weight {
    hn::Vec<Shorts> even, odd;
  };
  struct Input {
    hn::Vec<Shorts> even, odd;
  };
  static constexpr bool kDirect = true, kPairs = true;
  static constexpr int kWide = 2, kRun = 1, kTokens = HWY_MAX_BYTES == 64 ? 6 : 3;
  static HWY_INLINE Weight widen(hn::Vec<Bytes> w) {
    const auto shorts = hn::BitCast(hn::RebindToUnsigned<Shorts>(), w);
    const auto low = hn::And(shorts, hn::Set(hn::RebindToUnsigned<Shorts>(), 0xff));
    return {hn::BitCast(Shorts(), low), hn::BitCast(Shorts(), hn::ShiftRight<8>(shorts))};
  }
  // The even columns of 16 rows are stored first, then the odd ones.
  static HWY_INLINE Weight load(const uint8_t* from) {
    const int16_t* const shorts = reinterpret_cast<const int16_t*>(from);
    return {hn::Load(Shorts(), shorts), hn::Load(Shorts(), shorts + 2 * kGroup)};
  }
  static HWY_INLINE void store(Weight w, uint8_t* to) {
    int16_t* const shorts = reinterpret_cast<int16_t*>(to);
    hn::Store(w.even, Shorts(), shorts);
    hn::Store(w.odd, Shorts(), shorts + 2 * kGroup);
  }
  static HWY_INLINE Input input(const InputBlock&, const int16_t* pairs, int chunk) {
    return {hn::BitCast(Shorts(), broadcast(pairs + 4 * chunk)),
            hn::BitCast(Shorts(), broadcast(pairs + 4 * chunk + 2))};
  }
  static HWY_INLINE hn::Vec<Ints> add(hn::Vec<Ints> acc, Weight w, Input x) {
    return hn::Add(hn::Add(acc, madd(w.even, x.even)), madd(w.odd, x.odd));
  }
};
template <int kBits>
using Dot = std::conditional_t<kBits <= 6, ShortSums<kBits <= 6 ? kBits : 4>, ShortPairs>;

#else

// Any target: multiplies the four bytes of a lane one after the other, in 32 bits.
struct Lanes {
  using Weight = hn::Vec<Bytes>;
  static constexpr bool kDirect = true, kPairs = false;
  static constexpr int kWide = 1, kRun = 1, kTokens = 1;
  static HWY_INLINE Weight widen(hn::Vec<Bytes> w) { return w; }
  static HWY_INLINE Weight load(const uint8_t* from) { return hn::Load(Bytes(), from); }
  static HWY_INLINE void store(Weight w, uint8_t* to) { hn::Store(w, Bytes(), to); }
  static HWY_INLINE const int8_t* input(const InputBlock& x, const int16_t*, int chunk) {
    return x.q + 4 * chunk;
  }
  static HWY_INLINE hn::Vec<Ints> add(hn::Vec<Ints> acc, Weight w, const int8_t* x) {
    const Ints d;
    const auto lanes = hn::BitCast(d, w), mask = hn::Set(d, 0xff);
    const auto w0 = hn::And(lanes, mask), w1 = hn::And(hn::ShiftRight<8>(lanes), mask);
    const auto w2 = hn::And(hn::ShiftRight<16>(lanes), mask);
    const auto w3 = hn::And(hn::ShiftRight<24>(lanes), mask);
    acc = hn::Add(acc, hn::Mul(w0, hn::Set(d, x[0])));
    acc = hn::Add(acc, hn::Mul(w1, hn::Set(d, x[1])));
    acc = hn::Add(acc, hn::Mul(w2, hn::Set(d, x[2])));
    return hn::Add(acc, hn::Mul(w3, hn::Set(d, x[3])));
  }
};
template <int kBits>
using Dot = Lanes;

#endif
