// GEMMs with weights in fp8 (BlockFp8: a scale and 128 E4M3), read in place, as dot products in the
// manner of plain-inl.h.
//
// A block's products are summed in vectors of their own; the sum times the scale is added to the
// sum of the chunk. So E4M3 is converted exactly, and scaling costs one multiply-add for each block
// of a row and token.
//
// No include guard: included after plain-inl.h in every namespace that is compiled for another
// instruction set. An Ops of plain-inl.h that also has
//   load      kVectors vectors from kVectors * kStep codes, divided by
//   kFactor   a power of two, by which scales are multiplied

constexpr int64_t kFp8Columns = 128;                         // of a block
constexpr int64_t kFp8Bytes = 4 + kFp8Columns;               // scale and codes
constexpr int kFp8StreamRows = HWY_MAX_BYTES == 64 ? 8 : 4;  // two accumulators for each
constexpr int kFp8TileTokens = HWY_MAX_BYTES == 64 ? 3 : 1;  // 2 x 4 x 3 + 3 + 2 of 32 registers

// R rows read in place, and the R rows after them.
template <class Ops, int R>
struct Fp8Streamed {
  const std::byte *row[R], *next;
  HWY_INLINE void get(int r, int64_t block, int64_t k,
                      typename Ops::Vector (&to)[Ops::kVectors]) const {
    Ops::load(reinterpret_cast<const uint8_t*>(row[r]) + block * kFp8Bytes + 4 + k, to);
  }
  HWY_INLINE float scale(int r, int64_t block) const {
    float d;
    memcpy(&d, row[r] + block * kFp8Bytes, sizeof d);
    return d * Ops::kFactor;
  }
  // Prefetches what R blocks take of the next rows into the L2, in memory order.
  HWY_INLINE void prefetch(int64_t block) const {
    const std::byte* const from = next + R * block * kFp8Bytes;
    for (int64_t i = 0; i < R * kFp8Bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
  }
};

// Four rows of a panel: their columns converted, and behind the panel's rows the scales.
template <class Ops>
struct Fp8Unpacked {
  const typename Ops::Panel* row;
  const float* scales;  // [4][blocks of a chunk]
  static constexpr int64_t kBlocks = Ops::kChunk / kFp8Columns;
  HWY_INLINE void get(int r, int64_t block, int64_t k,
                      typename Ops::Vector (&to)[Ops::kVectors]) const {
    const auto* from = row + static_cast<size_t>(r) * kPanelStride<Ops> + block * kFp8Columns + k;
    for (int v = 0; v < Ops::kVectors; ++v) {
      to[v] = Ops::panel(from + v * static_cast<int>(Ops::kStep));
    }
  }
  HWY_INLINE float scale(int r, int64_t block) const { return scales[r * kBlocks + block]; }
  HWY_INLINE void prefetch(int64_t) const {}
};

// sums[t][0..R-1] += R rows x T tokens over `blocks` blocks.
template <class Ops, int R, int T, class Rows>
HWY_INLINE void fp8_tile(const Rows& rows, int64_t blocks,
                         const typename Ops::Panel* HWY_RESTRICT x, int64_t stride,
                         float* HWY_RESTRICT sums) {
  const Floats d;
  using V = hn::Vec<Floats>;
  constexpr int64_t kStep = static_cast<int64_t>(Ops::kStep);
  V total[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) total[r][t] = hn::Zero(d);
  }
  for (int64_t block = 0; block < blocks; ++block) {
    rows.prefetch(block);
    V part[R][T];
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < T; ++t) part[r][t] = hn::Zero(d);
    }
    for (int64_t k = 0; k < kFp8Columns; k += kStep * Ops::kVectors) {
      const auto* const at = x + block * kFp8Columns + k;
      for (int r = 0; r < R; ++r) {
        typename Ops::Vector w[Ops::kVectors];
        rows.get(r, block, k, w);
        for (int v = 0; v < Ops::kVectors; ++v) {
          for (int t = 0; t < T; ++t) {
            part[r][t] = Ops::mul_add(w[v], Ops::panel(at + t * stride + v * kStep), part[r][t]);
          }
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      const V scale = hn::Set(d, rows.scale(r, block));
      for (int t = 0; t < T; ++t) total[r][t] = hn::MulAdd(part[r][t], scale, total[r][t]);
    }
  }
  add_lanes(total, sums);
}

template <class Ops, int R, int T, class Rows>
HWY_INLINE void fp8_tiles(const Rows& rows, int64_t blocks, const typename Ops::Panel* x,
                          int64_t stride, int tokens, float* sums) {
  for (; tokens >= T; tokens -= T, x += T * stride, sums += T * kGroup) {
    fp8_tile<Ops, R, T>(rows, blocks, x, stride, sums);
  }
  if constexpr (T > 1) {
    if (tokens > 0) fp8_tiles<Ops, R, (T + 1) / 2>(rows, blocks, x, stride, tokens, sums);
  }
}

template <class Ops, int R, int T>
HWY_INLINE void fp8_stream_rows(const WeightView& w, int64_t first, const InputView& x, int token,
                                int tokens, float* sums) {
  for (int64_t k = 0; k < w.columns; k += Ops::kChunk) {
    const int64_t start = k / kFp8Columns * kFp8Bytes;
    Fp8Streamed<Ops, R> rows;
    // Beyond the last row: the last row again, whose sums are not used.
    for (int i = 0; i < R; ++i) {
      rows.row[i] = w.data + std::min(first + i, w.rows - 1) * w.stride + start;
    }
    rows.next = w.data + first * w.stride + R * (w.stride + start);
    fp8_tiles<Ops, R, T>(rows, std::min(Ops::kChunk, w.columns - k) / kFp8Columns,
                         Ops::input(x, token) + k, Ops::input_stride(x), tokens, sums);
  }
}

template <class Ops>
void fp8_stream(const WeightView& w, int64_t group, const InputView& x, int token, int tokens,
                float* sums) {
  const int64_t first = group * kGroup, count = std::min<int64_t>(kGroup, w.rows - first);
  std::fill_n(sums, tokens * kGroup, 0.0f);
  if (tokens == 1) {
    for (int64_t r = 0; r < count; r += kFp8StreamRows) {
      fp8_stream_rows<Ops, kFp8StreamRows, 1>(w, first + r, x, token, 1, sums + r);
    }
  } else {
    for (int64_t r = 0; r < count; r += 4) {
      fp8_stream_rows<Ops, 4, kFp8TileTokens>(w, first + r, x, token, tokens, sums + r);
    }
  }
}

template <class Ops>
constexpr size_t kFp8PanelBytes = kGroup* kPanelStride<Ops> * sizeof(typename Ops::Panel);

template <class Ops>
void fp8_unpack(const WeightView& w, int64_t group, int64_t column, std::byte* panel) {
  const int64_t blocks = std::min(Ops::kChunk, w.columns - column) / kFp8Columns;
  auto* to = reinterpret_cast<typename Ops::Panel*>(panel);
  auto* scales = reinterpret_cast<float*>(panel + kFp8PanelBytes<Ops>);
  for (int64_t r = 0; r < kGroup;
       ++r, to += kPanelStride<Ops>, scales += Fp8Unpacked<Ops>::kBlocks) {
    const int64_t row = std::min(group * kGroup + r, w.rows - 1);
    const Fp8Streamed<Ops, 1> from{{w.data + row * w.stride + column / kFp8Columns * kFp8Bytes},
                                   nullptr};
    for (int64_t block = 0; block < blocks; ++block) {
      scales[block] = from.scale(0, block);
      for (int64_t k = 0; k < kFp8Columns; k += int64_t{Ops::kStep} * Ops::kVectors) {
        typename Ops::Vector vectors[Ops::kVectors];
        from.get(0, block, k, vectors);
        for (int v = 0; v < Ops::kVectors; ++v) {
          Ops::store(vectors[v], to + block * kFp8Columns + k + v * int64_t{Ops::kStep});
        }
      }
    }
  }
}

template <class Ops>
void fp8_multiply(const std::byte* panel, int64_t, int, int64_t column, int64_t columns,
                  const InputView& x, int token, int tokens, float* sums) {
  const int64_t blocks = std::min(Ops::kChunk, columns - column) / kFp8Columns;
  const auto* from = reinterpret_cast<const typename Ops::Panel*>(panel);
  const auto* scales = reinterpret_cast<const float*>(panel + kFp8PanelBytes<Ops>);
  for (int r = 0; r < kGroup; r += 4) {
    const Fp8Unpacked<Ops> rows{from + static_cast<size_t>(r) * kPanelStride<Ops>,
                                scales + r * Fp8Unpacked<Ops>::kBlocks};
    fp8_tiles<Ops, 4, kFp8TileTokens>(rows, blocks, Ops::input(x, token) + column,
                                      Ops::input_stride(x), tokens, sums + r);
  }
}

template <class Ops>
MatmulKernel fp8_kernel(const char* name) {
  static_assert(kFp8PanelBytes<Ops> + kGroup * Fp8Unpacked<Ops>::kBlocks * sizeof(float) <=
                kScratchBytes);
  MatmulKernel kernel;
  kernel.name = name;
  kernel.input = Ops::kInput;
  kernel.chunk = static_cast<int>(Ops::kChunk);
  kernel.stream = fp8_stream<Ops>;
  kernel.unpack = fp8_unpack<Ops>;
  kernel.multiply = fp8_multiply<Ops>;
  return kernel;
}
