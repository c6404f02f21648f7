// Attention of prompts by AMX tiles (amx_tiles.h), for the Highway target being compiled. Included
// by attention_rows.cc inside its namespace.
//
//   S = Q K^T   per 32 rows x 64 keys; A = 16 rows x 32 elements of q, B = 32 elements of 16 keys
//   P           = exp(S - max), rounded to bf16 for the next product; max and sum stay f32
//   O += P V    A = 16 rows x 32 keys of P, B = 32 keys x 16 elements of v
//
// q, P, keys and values are bf16 (int8 converts exactly; f16 is rounded). Sums are f32. Both
// operands B have their rows in pairs, so a word of B holds
//   k[group][step][pair][key]       elements 2 pair and 2 pair + 1 of one key
//   v[half][column tile][i][column] keys i and 16 + i of a half of 32 keys
// P has keys i and 16 + i in one word too: two vectors of scores make it without a permute.
//
// Tiles of 64 keys start at multiples of 64, and the rows of a tile product are independent: the
// bits of a row depend on its position alone, as in f32.

inline constexpr int kTiledBlock = 32;  // rows of a 2 x 2 product
inline constexpr int kHalf = 32;        // keys: the depth of a product with V
inline constexpr int kTileWords = kTileRows * kTileRows;

// The nearest bf16 in the upper half of each lane, ties to even; the lower half is not cleared.
HWY_INLINE hn::Vec<Words> to_bf16(V x) {
  const Words words;
  const auto bits = hn::BitCast(words, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  return hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd);
}
HWY_INLINE hn::Vec<Words> pair_of(hn::Vec<Words> low, hn::Vec<Words> high) {
  return hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(Words(), 0xffff0000u)));
}

// Elements [i, i + kLanes) of a vector of `dim`; those beyond it are zero.
template <class From>
HWY_INLINE V load_padded(const typename From::T* from, int i, int dim) {
  if (i + kLanes <= dim) return From::load(from + i);
  typename From::T rest[kSumLanes] = {};
  if (i < dim) std::memcpy(rest, from + i, size_t(dim - i) * sizeof(*from));
  return From::load(rest);
}

struct TiledRoom {
  int steps, value_tiles;  // products along a head; tiles of 16 elements of a value
  uint32_t* q;             // [rows][steps 16]
  uint32_t* k;             // [kTile / 16][steps][16 pairs][16 keys]
  uint32_t* v;             // [2][value_tiles][16][16 columns]
  uint32_t* p;             // [kTiledBlock][kTile / 2]
  float* s[2];             // [kTiledBlock][kTile], of a block of rows and the next
  float* rest;             // [kTiledBlock][padded value_dim]: outputs of a block of fewer rows
  RowState span, total;

  TiledRoom(AttentionScratch& scratch, const AttentionJob& job, int head_dim, int value_dim)
      : steps((head_dim + 2 * kTileRows - 1) / (2 * kTileRows)),
        value_tiles(padded(value_dim) / kTileRows) {
    const int rows = (job.rows + kTiledBlock - 1) / kTiledBlock * kTiledBlock;
    const auto n = size_t(rows), state = state_floats(size_t(job.rows), value_dim);
    const size_t q_words = n * size_t(steps * kTileRows);
    const size_t k_words = size_t(kTile / kKeyGroup * steps) * kTileWords;
    const size_t v_words = size_t(2 * value_tiles) * kTileWords;
    const size_t s_floats = kTiledBlock * kTile, p_words = s_floats / 2;
    const size_t rest_floats = size_t(kTiledBlock * padded(value_dim));
    float* at = scratch.reserve(q_words + k_words + v_words + p_words + 2 * s_floats + rest_floats +
                                2 * state);
    // Padding that no conversion writes is zero.
    std::fill_n(at, q_words + k_words + v_words + p_words, 0.0f);
    const auto take = [&at](size_t floats) { return std::exchange(at, at + floats); };
    const auto take_words = [&](size_t count) { return reinterpret_cast<uint32_t*>(take(count)); };
    q = take_words(q_words);
    k = take_words(k_words);
    v = take_words(v_words);
    p = take_words(p_words);
    for (float*& scores : s) scores = take(s_floats);
    rest = take(rest_floats);
    span = state_at(take(state), size_t(job.rows), value_dim);
    total = state_at(take(state), size_t(job.rows), value_dim);
    if (job.partial != nullptr) span = state_at(job.partial, size_t(job.rows), value_dim);
  }
};

inline void pack_tiled_queries(const AttentionCall& call, const AttentionJob& job,
                               const TiledRoom& room) {
  const int dim = call.cache.head_dim;
  const hn::Rebind<uint16_t, Words> halves;
  const hn::Rebind<int32_t, Words> ints;
  const V scale = hn::Set(Floats(), call.rules.scale);
  for (int row = 0; row < job.rows; ++row) {
    const float* from =
        call.q + token_of(call, job, row) * call.q_stride + head_of(call, job, row) * size_t(dim);
    auto* const to = reinterpret_cast<uint16_t*>(room.q + row * room.steps * kTileRows);
    for (int i = 0; i < room.steps * 2 * kTileRows; i += kLanes) {
      const V x = hn::Mul(load_padded<FromF32>(from, i, dim), scale);
      const auto rounded = hn::ShiftRight<16>(to_bf16(x));
      hn::StoreU(hn::DemoteTo(halves, hn::BitCast(ints, rounded)), halves, to + i);
    }
  }
}

// Keys and values of a tile to pairs of bf16. Values of keys outside [begin, end) are zero: their
// weights are, but the memory may hold NaN. Keys there are masked later.
template <class From>
void convert_tile(const CacheTile<typename From::T>& found, int dim, int begin, int end,
                  const TiledRoom& room) {
  const Words words;
  for (int g = 0; g * kKeyGroup < end; ++g) {
    const auto* from = found.keys[g];
    uint32_t* to = room.k + g * room.steps * kTileWords;
    for (int i = 0; i < dim; i += 2, from += 2 * kKeyGroup, to += kTileRows) {
      for (int key = 0; key < kKeyGroup; key += kLanes) {
        const auto low = to_bf16(From::load(from + key));
        const auto high = to_bf16(From::load(from + kKeyGroup + key));
        hn::Store(pair_of(low, high), words, to + key);
      }
    }
  }
  const auto value = [&](int key, int i) HWY_ATTR {
    if (key < begin || key >= end) return hn::Zero(Words());
    const auto* from = found.values[key / kKeyGroup] + key % kKeyGroup * dim;
    return to_bf16(load_padded<From>(from, i, dim));
  };
  for (int half = 0; half * kHalf < end; ++half) {
    for (int i = 0; i < kTileRows; ++i) {
      const int key = half * kHalf + i;
      uint32_t* const to = room.v + half * room.value_tiles * kTileWords + i * kTileRows;
      for (int column = 0; column < room.value_tiles * kTileRows; column += kLanes) {
        hn::Store(pair_of(value(key, column), value(key + kTileRows, column)), words,
                  to + column / kTileRows * kTileWords + column % kTileRows);
      }
    }
  }
}

// scores[32 rows][keys of halves [first, last)] = q k
template <class Tiles>
void tiled_scores(const TiledRoom& room, int row, int first, int last, float* scores) {
  const int64_t stride = room.steps * kTileBytes;
  for (int half = first; half < last; ++half) {
    const uint32_t* a = room.q + row * room.steps * kTileRows;
    const uint32_t* b = room.k + half * 2 * room.steps * kTileWords;
    const uint32_t* const second = a + kTileRows * room.steps * kTileRows;
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
    for (int step = 0; step < room.steps; ++step, b += kTileWords) {
      Tiles::template load<4>(a + step * kTileRows, stride);
      Tiles::template load<6>(b, kTileBytes);
      Tiles::template multiply_bf16<0, 4, 6>();
      Tiles::template load<7>(b + room.steps * kTileWords, kTileBytes);
      Tiles::template multiply_bf16<1, 4, 7>();
      Tiles::template load<5>(second + step * kTileRows, stride);
      Tiles::template multiply_bf16<2, 5, 6>();
      Tiles::template multiply_bf16<3, 5, 7>();
    }
    float* const s = scores + half * kHalf;
    constexpr int64_t kStride = kTile * sizeof(float);
    Tiles::template store<0>(s, kStride);
    Tiles::template store<1>(s + kTileRows, kStride);
    Tiles::template store<2>(s + kTileRows * kTile, kStride);
    Tiles::template store<3>(s + kTileRows * kTile + kTileRows, kStride);
  }
}

// out[32 rows][kColumns tiles] += p v over the keys of halves [first, last)
template <class Tiles, int kColumns>
void tiled_mix(const TiledRoom& room, float* out, int column, int first, int last) {
  const int64_t stride = room.value_tiles * kTileBytes;
  constexpr int64_t kStride = kTile / 2 * sizeof(uint32_t);
  float* const to = out + column * kTileRows;
  float* const second = to + kTileRows * room.value_tiles * kTileRows;
  Tiles::template load<0>(to, stride);
  Tiles::template load<2>(second, stride);
  if constexpr (kColumns == 2) {
    Tiles::template load<1>(to + kTileRows, stride);
    Tiles::template load<3>(second + kTileRows, stride);
  }
  for (int half = first; half < last; ++half) {
    const uint32_t* const a = room.p + half * kTileRows;
    const uint32_t* const b = room.v + (half * room.value_tiles + column) * kTileWords;
    Tiles::template load<4>(a, kStride);
    Tiles::template load<6>(b, kTileBytes);
    Tiles::template multiply_bf16<0, 4, 6>();
    Tiles::template load<5>(a + kTileRows * kTile / 2, kStride);
    Tiles::template multiply_bf16<2, 5, 6>();
    if constexpr (kColumns == 2) {
      Tiles::template load<7>(b + kTileWords, kTileBytes);
      Tiles::template multiply_bf16<1, 4, 7>();
      Tiles::template multiply_bf16<3, 5, 7>();
    }
  }
  Tiles::template store<0>(to, stride);
  Tiles::template store<2>(second, stride);
  if constexpr (kColumns == 2) {
    Tiles::template store<1>(to + kTileRows, stride);
    Tiles::template store<3>(second + kTileRows, stride);
  }
}

// exp(x) for x <= 0. 2^-127 is made as 0, and so are the smaller ones; NaN stays NaN.
HWY_INLINE V exp_for_bf16(V x) {
  const Floats d;
  const V t = hn::Mul(x, hn::Set(d, 1.44269504f));
  return exp2_for_bf16(d, hn::Max(hn::Set(d, -127.0f), t));
}

// Scales, caps and masks a row's scores of halves [first, last), as prepare() does. Returns the
// maximum of these and `max`.
template <bool kPlain>
HWY_INLINE float tiled_max(const Softening& how, float* HWY_RESTRICT s, int first, int last,
                           int begin, int end, float max) {
  const Floats d;
  const hn::Rebind<int32_t, Floats> ints;
  V most = hn::Set(d, max);
  for (int key = first * kHalf; key < last * kHalf; key += kLanes) {
    V x = hn::Load(d, s + key);
    if constexpr (!kPlain) {
      if (how.key_scale) x = hn::Mul(x, hn::Load(d, how.key_scale + key));
      if (how.softcap > 0) {
        const V cap = hn::Set(d, how.softcap);
        x = hn::Mul(cap, hn::Tanh(d, hn::Div(x, cap)));
      }
      const auto index = hn::Iota(ints, key);
      const auto seen =
          hn::And(hn::Gt(index, hn::Set(ints, begin - 1)), hn::Lt(index, hn::Set(ints, end)));
      x = hn::IfThenElse(hn::RebindMask(d, seen), x,
                         hn::Set(d, -std::numeric_limits<float>::infinity()));
      hn::Store(x, d, s + key);
    }
    most = hn::Max(x, most);
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// A row's weights, as pairs of bf16; rescales the row's sum and adds the f32 weights to it.
HWY_INLINE void tiled_weigh(const Softening& how, const float* HWY_RESTRICT s, int first, int last,
                            float max, float rescale, float* HWY_RESTRICT sum,
                            uint32_t* HWY_RESTRICT p) {
  const Floats d;
  const Words words;
  const V most = hn::Set(d, max);
  // Weights are not negative, and halfway cases are rare: upwards.
  const auto half = hn::Set(words, 0x8000u);
  V total = hn::Mul(hn::Load(d, sum), hn::Set(d, rescale));
  for (int h = first; h < last; ++h) {
    for (int i = 0; i < kTileRows; i += kLanes) {
      const int key = h * kHalf + i, other = key + kTileRows;
      V low = exp_for_bf16(hn::Sub(hn::Load(d, s + key), most));
      V high = exp_for_bf16(hn::Sub(hn::Load(d, s + other), most));
      total = hn::Add(total, hn::Add(low, high));
      if (how.value_scale) {
        low = hn::Mul(low, hn::Load(d, how.value_scale + key));
        high = hn::Mul(high, hn::Load(d, how.value_scale + other));
      }
      hn::Store(
          pair_of(hn::Add(hn::BitCast(words, low), half), hn::Add(hn::BitCast(words, high), half)),
          words, p + h * kTileRows + i);
    }
  }
  hn::Store(total, d, sum);
}

// What rows [row, row + rows) see of the tile of keys at `tile`.
struct Seen {
  int row, rows;
  int first, last;  // halves of the tile; none: first == last
  bool plain;       // all rows see all of their keys, and scores need nothing else

  Seen(const AttentionCall& call, const AttentionJob& job, const Softening& soft, int tile,
       int at_row)
      : row(at_row), rows(std::min(kTiledBlock, job.rows - row)), first(0), last(0), plain(false) {
    if (rows <= 0) return;
    const Sight top = sight_of(call, job, row), bottom = sight_of(call, job, row + rows - 1);
    const int begin = std::max(top.begin - tile, 0);
    const int end = std::min({bottom.end, job.end, tile + kTile}) - tile;
    if (begin >= end) return;
    first = begin / kHalf;
    last = (end + kHalf - 1) / kHalf;
    plain = bottom.begin <= tile + first * kHalf && top.end >= tile + last * kHalf &&
            soft.key_scale == nullptr && soft.softcap == 0;
  }
};

// Raises the rows' maxima to those of `scores`, which it scales, caps and masks.
inline void tiled_maxima(const AttentionCall& call, const AttentionJob& job, const Softening& soft,
                         int tile, const Seen& seen, float* scores, float* max) {
  for (int r = 0; r < seen.rows; ++r) {
    float* const s = scores + r * kTile;
    if (seen.plain) {
      max[r] = tiled_max<true>(soft, s, seen.first, seen.last, 0, 0, max[r]);
    } else {
      const Sight sight = sight_of(call, job, seen.row + r);
      max[r] = tiled_max<false>(soft, s, seen.first, seen.last, sight.begin - tile,
                                std::min(sight.end, job.end) - tile, max[r]);
    }
  }
}

// Adds the keys of a tile to a block of rows, from its scores.
template <class Tiles>
void attend_tile(const AttentionCall& call, const AttentionJob& job, const TiledRoom& room,
                 const Softening& soft, int tile, const Seen& seen, float* scores) {
  const Floats d;
  const int stride = room.value_tiles * kTileRows;
  HWY_ALIGN float before[kTiledBlock] = {}, fresh[kTiledBlock] = {}, rescale[kTiledBlock];
  float* const max = room.span.max + seen.row;
  std::copy_n(max, seen.rows, before);
  tiled_maxima(call, job, soft, tile, seen, scores, max);
  std::copy_n(max, seen.rows, fresh);
  for (int r = 0; r < kTiledBlock; r += kLanes) {
    const V fall = hn::Sub(hn::Load(d, before + r), hn::Load(d, fresh + r));
    hn::Store(exp_negative(fall), d, rescale + r);
  }
  float* const out = room.span.out + seen.row * stride;
  const bool whole = seen.rows == kTiledBlock;
  for (int r = 0; r < seen.rows; ++r) {
    tiled_weigh(soft, scores + r * kTile, seen.first, seen.last, max[r], rescale[r],
                room.span.sum + (seen.row + r) * kSumLanes, room.p + r * kTile / 2);
    // Later maxima rarely rise.
    if (whole && rescale[r] == 1) continue;
    float* const to = whole ? out + r * stride : room.rest + r * stride;
    for (int i = 0; i < stride; i += kLanes) {
      const V now = hn::Load(d, out + r * stride + i);
      hn::Store(hn::Mul(hn::Set(d, rescale[r]), now), d, to + i);
    }
  }
  float* const sums = whole ? out : room.rest;
  int column = 0;
  for (; column + 2 <= room.value_tiles; column += 2) {
    tiled_mix<Tiles, 2>(room, sums, column, seen.first, seen.last);
  }
  if (column < room.value_tiles) tiled_mix<Tiles, 1>(room, sums, column, seen.first, seen.last);
  if (!whole) std::copy_n(room.rest, seen.rows * stride, out);
}

// All rows of a job over a tile of keys, which is converted. The scores of the next block of rows
// are multiplied before the softmax of a block, which would otherwise wait for its own.
template <class Tiles>
void attend_rows(const AttentionCall& call, const AttentionJob& job, const TiledRoom& room,
                 const Softening& soft, int tile) {
  const auto multiply = [&](const Seen& seen) {
    if (seen.first == seen.last) return;
    tiled_scores<Tiles>(room, seen.row, seen.first, seen.last, room.s[seen.row / kTiledBlock % 2]);
  };
  Seen seen(call, job, soft, tile, 0);
  multiply(seen);
  while (seen.rows > 0) {
    const Seen next(call, job, soft, tile, seen.row + kTiledBlock);
    multiply(next);
    if (seen.first < seen.last) {
      attend_tile<Tiles>(call, job, room, soft, tile, seen, room.s[seen.row / kTiledBlock % 2]);
    }
    seen = next;
  }
}

template <class From, class Tiles>
void attend_tiled(const AttentionCall& call, const AttentionJob& job, AttentionScratch& scratch) {
  using T = typename From::T;
  const int dim = call.cache.head_dim;
  TiledRoom room(scratch, job, dim, dim);
  pack_tiled_queries(call, job, room);
  Tiles::begin();
  attend_spans(call, job, room.span, room.total, [&](const RowState& state, int begin, int end) {
    room.span = state;
    for (int tile = begin; tile < end; tile += kTile) {
      CacheTile<T> found;
      find_tile(call, job, tile, job.end, found);
      const int first = std::max(job.begin - tile, 0), last = std::min(job.end - tile, kTile);
      convert_tile<From>(found, dim, first, last, room);
      if (sizeof(T) == 1) {  // weights of masked keys are zero, and stay zero
        std::fill_n(found.value_scale, first, 0.0f);
        std::fill(found.value_scale + last, found.value_scale + kTile, 0.0f);
      }
      const Softening soft{call.rules.softcap, sizeof(T) == 1 ? found.key_scale : nullptr,
                           sizeof(T) == 1 ? found.value_scale : nullptr};
      attend_rows<Tiles>(call, job, room, soft, tile);
    }
  });
  Tiles::end();
}
