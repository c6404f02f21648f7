// Products with weights in f32, f16 and bf16, in dot form: lanes are columns, one vector
// accumulator per (row, token).
//
// No include guard: included once in every namespace whose functions are compiled for another
// instruction set. An Ops says how weights become vectors and how they are multiplied:
//   Panel    element of unpacked weights and of the activations
//   kBytes   of a weight where it lies; kStep weights make a vector
//   load     a vector of weights where they lie (no alignment); panel: of unpacked ones or of x
//   mul_add  a float accumulator + w x

// Four vectors to their four sums, lanes added in a fixed tree.
template <class D, class V>
HWY_INLINE auto fold(D, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
template <class V>
HWY_INLINE auto sum_lanes(V a, V b, V c, V e) {
  const Floats d;
  const hn::Repartition<double, Floats> wide;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto low = hn::InterleaveLower(wide, hn::BitCast(wide, ab), hn::BitCast(wide, ce));
  const auto high = hn::InterleaveUpper(wide, hn::BitCast(wide, ab), hn::BitCast(wide, ce));
  return fold(d, hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)));
}

// Four rows where they lie.
template <class Ops>
struct Streamed {
  const std::byte* row[4];
  HWY_INLINE auto get(int r, size_t k) const { return Ops::load(row[r] + k * Ops::kBytes); }
  // The last `count` weights of a row, and zeros: nothing is read past its end.
  HWY_INLINE auto tail(int r, size_t k, size_t count) const {
    alignas(64) std::byte rest[Ops::kStep * Ops::kBytes] = {};
    memcpy(rest, row[r] + k * Ops::kBytes, count * Ops::kBytes);
    return Ops::load(rest);
  }
};

// Four rows of a panel.
template <class Ops>
struct Unpacked {
  const typename Ops::Panel* row;
  HWY_INLINE auto get(int r, size_t k) const {
    return Ops::panel(row + static_cast<size_t>(r) * kPanelStride<Ops> + k);
  }
  HWY_INLINE auto tail(int r, size_t k, size_t) const { return get(r, k); }
};

// sums[t][0..3] += four rows x T tokens over one chunk of columns. Per step 4 + T loads and 4 T
// multiply-adds in 4 T chains: T = 6 takes 24 + 6 + 1 of 32 registers, T = 3 takes 12 + 3 + 1
// of 16.
template <class Ops, int T, class Rows>
HWY_INLINE void tile(const Rows& rows, size_t columns, const typename Ops::Panel* HWY_RESTRICT x,
                     int64_t stride, float* HWY_RESTRICT sums) {
  const Floats d;
  using V = hn::Vec<Floats>;
  V acc[4][T];
  for (int r = 0; r < 4; ++r) {
    for (int t = 0; t < T; ++t) acc[r][t] = hn::Zero(d);
  }
  const size_t whole = columns / Ops::kStep * Ops::kStep;
  for (size_t k = 0; k < whole; k += Ops::kStep) {
    typename Ops::Vector xs[T];
    for (int t = 0; t < T; ++t) xs[t] = Ops::panel(x + t * stride + static_cast<int64_t>(k));
    for (int r = 0; r < 4; ++r) {
      const auto w = rows.get(r, k);
      for (int t = 0; t < T; ++t) acc[r][t] = Ops::mul_add(w, xs[t], acc[r][t]);
    }
  }
  if (whole < columns) {
    for (int r = 0; r < 4; ++r) {
      const auto w = rows.tail(r, whole, columns - whole);
      for (int t = 0; t < T; ++t) {
        const auto xs = Ops::panel(x + t * stride + static_cast<int64_t>(whole));
        acc[r][t] = Ops::mul_add(w, xs, acc[r][t]);
      }
    }
  }
  const hn::FixedTag<float, 4> four;
  for (int t = 0; t < T; ++t) {
    const auto sum = sum_lanes(acc[0][t], acc[1][t], acc[2][t], acc[3][t]);
    hn::StoreU(hn::Add(hn::LoadU(four, sums + t * kGroup), sum), four, sums + t * kGroup);
  }
}

// tile() over all tokens: full tiles, then ever smaller ones.
template <class Ops, int T, class Rows>
HWY_INLINE void tiles(const Rows& rows, size_t columns, const typename Ops::Panel* x,
                      int64_t stride, int tokens, float* sums) {
  for (; tokens >= T; tokens -= T, x += T * stride, sums += T * kGroup) {
    tile<Ops, T>(rows, columns, x, stride, sums);
  }
  if constexpr (T > 1) {
    if (tokens > 0) tiles<Ops, (T + 1) / 2>(rows, columns, x, stride, tokens, sums);
  }
}

template <class Ops>
void stream(const WeightView& w, int64_t group, const InputView& x, int token, int tokens,
            float* sums) {
  const int64_t first = group * kGroup;
  std::fill_n(sums, tokens * kGroup, 0.0f);
  for (int64_t r = 0; r < std::min<int64_t>(kGroup, w.rows - first); r += 4) {
    const std::byte* row[4];  // beyond the last row: the last again, its sums unused
    for (int i = 0; i < 4; ++i) row[i] = w.data + std::min(first + r + i, w.rows - 1) * w.stride;
    for (int64_t k = 0; k < w.columns; k += Ops::kChunk) {
      Streamed<Ops> rows;
      for (int i = 0; i < 4; ++i) rows.row[i] = row[i] + k * Ops::kBytes;
      tiles<Ops, kTileTokens>(rows, static_cast<size_t>(std::min(Ops::kChunk, w.columns - k)),
                              Ops::input(x, token) + k, Ops::input_stride(x), tokens, sums + r);
    }
  }
}

template <class Ops>
void unpack(const WeightView& w, int64_t group, int64_t column, std::byte* panel) {
  const size_t columns = static_cast<size_t>(std::min(Ops::kChunk, w.columns - column));
  const size_t whole = columns / Ops::kStep * Ops::kStep;
  auto* to = reinterpret_cast<typename Ops::Panel*>(panel);
  for (int64_t r = 0; r < kGroup; ++r, to += kPanelStride<Ops>) {
    const int64_t row = std::min(group * kGroup + r, w.rows - 1);
    const Streamed<Ops> from{{w.data + row * w.stride + column * Ops::kBytes}};
    for (size_t k = 0; k < whole; k += Ops::kStep) Ops::store(from.get(0, k), to + k);
    if (whole < columns) Ops::store(from.tail(0, whole, columns - whole), to + whole);
  }
}

template <class Ops>
void multiply(const std::byte* panel, int, int64_t column, int64_t columns, const InputView& x,
              int token, int tokens, float* sums) {
  const size_t count = static_cast<size_t>(std::min(Ops::kChunk, columns - column));
  const auto* from = reinterpret_cast<const typename Ops::Panel*>(panel);
  for (int r = 0; r < kGroup; r += 4) {
    const Unpacked<Ops> rows{from + static_cast<size_t>(r) * kPanelStride<Ops>};
    tiles<Ops, kTileTokens>(rows, count, Ops::input(x, token) + column, Ops::input_stride(x),
                            tokens, sums + r);
  }
}

template <class Ops>
MatmulKernel plain_kernel(const char* name) {
  MatmulKernel kernel;
  kernel.name = name;
  kernel.input = Ops::kInput;
  kernel.chunk = static_cast<int>(Ops::kChunk);
  kernel.stream = stream<Ops>;
  kernel.unpack = unpack<Ops>;
  kernel.multiply = multiply<Ops>;
  return kernel;
}
