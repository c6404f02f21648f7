// GEMMs with weights in f32, f16 and bf16, as dot products: lanes are columns, with one vector
// accumulator per (row, token).
//
// No include guard: included once in every namespace that is compiled for another instruction set.
// An Ops defines how weights are loaded into vectors and multiplied:
//   Panel    element of unpacked weights and of the activations
//   kBytes   bytes of a stored weight; kStep weights fill a vector
//   load     a vector of stored weights (unaligned); panel: of unpacked weights or of x
//   mul_add  a float accumulator + w x

// Reduces four vectors to their four sums. The lanes are added in a fixed tree.
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

// sums[t][r] += the lanes of acc[r][t].
template <int R, int T>
HWY_INLINE void add_lanes(const hn::Vec<Floats> (&acc)[R][T], float* HWY_RESTRICT sums) {
  const hn::FixedTag<float, 4> four;
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; r += 4) {
      const auto sum = sum_lanes(acc[r][t], acc[r + 1][t], acc[r + 2][t], acc[r + 3][t]);
      float* const to = sums + t * kGroup + r;
      hn::StoreU(hn::Add(hn::LoadU(four, to), sum), four, to);
    }
  }
}

// R rows read in place, and the R rows after them.
template <class Ops, int R>
struct Streamed {
  const std::byte *row[R], *next;
  HWY_INLINE auto get(int r, size_t k) const { return Ops::load(row[r] + k * Ops::kBytes); }
  // The last `count` weights of a row, padded with zeros: nothing is read past the end of the row.
  HWY_INLINE auto tail(int r, size_t k, size_t count) const {
    alignas(64) std::byte rest[Ops::kStep * Ops::kBytes] = {};
    memcpy(rest, row[r] + k * Ops::kBytes, count * Ops::kBytes);
    return Ops::load(rest);
  }
  // Prefetches R lines of the next rows into the L2, in memory order.
  HWY_INLINE void prefetch(size_t k) const {
    for (size_t i = 0; i < R; ++i) __builtin_prefetch(next + R * k * Ops::kBytes + 64 * i, 0, 2);
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
  HWY_INLINE void prefetch(size_t) const {}
};

// acc[r][t] += kStep columns of R rows x T tokens. A function rather than a lambda inside tile():
// clang gives a lambda only the target attributes that are written on it, and HWY_ATTR lacks the
// features that bf16_dot adds to its target.
template <class Ops, int R, int T, class Rows>
HWY_INLINE void add_columns(const Rows& rows, size_t k, const typename Ops::Panel* HWY_RESTRICT x,
                            int64_t stride, hn::Vec<Floats> (&acc)[R][T]) {
  typename Ops::Vector xs[T];
  for (int t = 0; t < T; ++t) xs[t] = Ops::panel(x + t * stride + static_cast<int64_t>(k));
  for (int r = 0; r < R; ++r) {
    const auto w = rows.get(r, k);
    for (int t = 0; t < T; ++t) acc[r][t] = Ops::mul_add(w, xs[t], acc[r][t]);
  }
}

// sums[t][0..R-1] += R rows x T tokens over one chunk of columns. A step has R + T loads and R T
// multiply-adds in R T independent chains. With R = 4, T = 6 takes 24 + 6 + 1 of 32 registers, T =
// 3 takes 12 + 3 + 1 of 16.
template <class Ops, int R, int T, class Rows>
HWY_INLINE void tile(const Rows& rows, size_t columns, const typename Ops::Panel* HWY_RESTRICT x,
                     int64_t stride, float* HWY_RESTRICT sums) {
  const Floats d;
  hn::Vec<Floats> acc[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) acc[r][t] = hn::Zero(d);
  }
  constexpr size_t kLine = 64 / Ops::kBytes;  // weights
  const size_t whole = columns / Ops::kStep * Ops::kStep;
  size_t k = 0;
  for (; k + kLine <= whole; k += kLine) {
    rows.prefetch(k);
    for (size_t i = 0; i < kLine; i += Ops::kStep) {
      add_columns<Ops>(rows, k + i, x, stride, acc);
    }
  }
  for (; k < whole; k += Ops::kStep) add_columns<Ops>(rows, k, x, stride, acc);
  if (whole < columns) {
    for (int r = 0; r < R; ++r) {
      const auto w = rows.tail(r, whole, columns - whole);
      for (int t = 0; t < T; ++t) {
        const auto xs = Ops::panel(x + t * stride + static_cast<int64_t>(whole));
        acc[r][t] = Ops::mul_add(w, xs, acc[r][t]);
      }
    }
  }
  add_lanes(acc, sums);
}

// Runs tile() over all tokens: full tiles first, then smaller and smaller ones.
template <class Ops, int R, int T, class Rows>
HWY_INLINE void tiles(const Rows& rows, size_t columns, const typename Ops::Panel* x,
                      int64_t stride, int tokens, float* sums) {
  for (; tokens >= T; tokens -= T, x += T * stride, sums += T * kGroup) {
    tile<Ops, R, T>(rows, columns, x, stride, sums);
  }
  if constexpr (T > 1) {
    if (tokens > 0) tiles<Ops, R, (T + 1) / 2>(rows, columns, x, stride, tokens, sums);
  }
}

template <class Ops, int R, int T>
HWY_INLINE void stream_rows(const WeightView& w, int64_t first, const InputView& x, int token,
                            int tokens, float* sums) {
  const std::byte* row[R];  // beyond the last row: the last row again, whose sums are not used
  for (int i = 0; i < R; ++i) row[i] = w.data + std::min(first + i, w.rows - 1) * w.stride;
  for (int64_t k = 0; k < w.columns; k += Ops::kChunk) {
    const int64_t start = k * int64_t{Ops::kBytes};
    Streamed<Ops, R> rows;
    for (int i = 0; i < R; ++i) rows.row[i] = row[i] + start;
    rows.next = row[0] + R * (w.stride + start);
    tiles<Ops, R, T>(rows, static_cast<size_t>(std::min(Ops::kChunk, w.columns - k)),
                     Ops::input(x, token) + k, Ops::input_stride(x), tokens, sums);
  }
}

// GEMM for few tokens, limited by memory, which is fastest with a single stream. One row at a time
// reads x again for every row, and the streamed weights evict x from the L1 (37 to 70 % of a core's
// read bandwidth; 100 % in a trial with a small x). Several rows side by side are several streams
// (four: 55 to 70 %; each prefetched: 50 %). Therefore eight rows side by side share each load of
// x. They are read from the L2, into which the rows before prefetched them in memory order: 76 to
// 98 %.
template <class Ops>
void stream(const WeightView& w, int64_t group, const InputView& x, int token, int tokens,
            float* sums) {
  const int64_t first = group * kGroup, count = std::min<int64_t>(kGroup, w.rows - first);
  std::fill_n(sums, tokens * kGroup, 0.0f);
  if (tokens == 1) {
    for (int64_t r = 0; r < count; r += 8) {
      stream_rows<Ops, 8, 1>(w, first + r, x, token, 1, sums + r);
    }
  } else {
    for (int64_t r = 0; r < count; r += 4) {
      stream_rows<Ops, 4, kTileTokens>(w, first + r, x, token, tokens, sums + r);
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
    const Streamed<Ops, 1> from{{w.data + row * w.stride + column * int64_t{Ops::kBytes}}, nullptr};
    for (size_t k = 0; k < whole; k += Ops::kStep) Ops::store(from.get(0, k), to + k);
    if (whole < columns) Ops::store(from.tail(0, whole, columns - whole), to + whole);
  }
}

template <class Ops>
void multiply(const std::byte* panel, int64_t, int, int64_t column, int64_t columns,
              const InputView& x, int token, int tokens, float* sums) {
  const size_t count = static_cast<size_t>(std::min(Ops::kChunk, columns - column));
  const auto* from = reinterpret_cast<const typename Ops::Panel*>(panel);
  for (int r = 0; r < kGroup; r += 4) {
    const Unpacked<Ops> rows{from + static_cast<size_t>(r) * kPanelStride<Ops>};
    tiles<Ops, 4, kTileTokens>(rows, count, Ops::input(x, token) + column, Ops::input_stride(x),
                               tokens, sums + r);
  }
}

template <class Ops>
MatmulKernel plain_kernel(const char* name) {
  static_assert(kGroup * kPanelStride<Ops> * sizeof(typename Ops::Panel) <= kScratchBytes);
  MatmulKernel kernel;
  kernel.name = name;
  kernel.input = Ops::kInput;
  kernel.chunk = static_cast<int>(Ops::kChunk);
  // Converting the weights again for every slice costs less than a panel up to here (Zen 4).
  kernel.stream_tokens = 48;
  kernel.stream = stream<Ops>;
  kernel.unpack = unpack<Ops>;
  kernel.multiply = multiply<Ops>;
  return kernel;
}
