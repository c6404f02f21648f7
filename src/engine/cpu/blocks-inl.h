// GEMMs with packed block formats (pack.h): lanes are rows, so there are no sums across lanes.
//
// No include guard: included after dot-inl.h, once in every namespace that is compiled for another
// instruction set. What multiplies or loads is a function, not a lambda: clang gives a lambda only
// the target attributes that are written on it, and HWY_ATTR lacks VNNI.

using Floats = hn::ScalableTag<float>;
constexpr int kLanes = HWY_MAX_BYTES / 4;
constexpr int kParts = kGroup / kLanes;  // vectors per group
// A tile has at least two vectors of rows.
constexpr int kPanelGroups = kParts == 1 ? 2 : 1;
constexpr int64_t kChunk = 512;  // columns of a panel

// A block of a panel: scales in f32, mins, then eight chunks of Weights.
template <Layout kLayout>
struct PanelBlock {
  static constexpr LayoutInfo kInfo = layout_info(kLayout);
  static constexpr bool kTwoChains = false;
  using D = Dot<kInfo.value_bits>;
  static constexpr int kScales = kBlock / kInfo.columns_per_scale;
  static constexpr int kMins = kScales * kGroup * 4;  // offset of the mins
  static constexpr int kData = kMins + (kInfo.min ? kGroup * 4 : 0);
  static constexpr int kChunkBytes = kGroup * 4 * D::kWide;
  static constexpr int kBytes = kData + 8 * kChunkBytes;
  static_assert(kBytes * (kChunk / kBlock) <= kPanelBytes);

  const uint8_t* at;  // the block in the first group

  static constexpr int part(int v) { return v / kParts * kPanelBytes + v % kParts * kLanes * 4; }
  HWY_INLINE auto weight(int chunk, int v) const {
    return D::load(at + kData + chunk * kChunkBytes + part(v));
  }
  HWY_INLINE auto scale(int s, int v) const {
    return hn::Load(Floats(), reinterpret_cast<const float*>(at + s * kGroup * 4 + part(v)));
  }
  HWY_INLINE auto min(int v) const {
    return hn::Load(Floats(), reinterpret_cast<const float*>(at + kMins + part(v)));
  }
};

// The same block in the packed format; groups are `stride` bytes apart. Two chains: see add_block.
template <Layout kLayout, bool kChains = false>
struct PackedBlock {
  static constexpr LayoutInfo kInfo = layout_info(kLayout);
  static constexpr bool kTwoChains = kChains;
  using D = Dot<kInfo.value_bits>;
  const uint8_t *scales, *mins, *data;
  int64_t stride;

  HWY_INLINE PackedBlock(const std::byte* group, int64_t group_stride, int64_t block)
      : stride(group_stride) {
    const auto* pair = reinterpret_cast<const uint8_t*>(group) + block / 2 * kInfo.pair_bytes();
    const int64_t second = block % 2;
    scales = pair + second * kInfo.scale_bytes();
    mins = pair + 2 * kInfo.scale_bytes() + second * kInfo.min_bytes();
    data = pair + 2 * (kInfo.scale_bytes() + kInfo.min_bytes()) + second * kInfo.data_bytes();
  }
  HWY_INLINE auto bytes(int chunk, int v) const {
    return hn::Load(Bytes(),
                    data + v / kParts * stride + (chunk * kParts + v % kParts) * kLanes * 4);
  }
  // Four columns, a byte each.
  HWY_INLINE hn::Vec<Bytes> integers(int chunk, int v) const {
    if constexpr (kInfo.stored_bits == 8) {
      return bytes(chunk, v);
    } else {
      const Bytes d;
      const auto both = bytes(chunk % 4, v);
      const hn::Repartition<uint16_t, Bytes> wide;  // there is no shift of 8-bit lanes
      const auto high = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(wide, both)));
      const auto nibbles = hn::And(chunk < 4 ? both : high, hn::Set(d, 15));
      if constexpr (kLayout == Layout::fp4) {
        return hn::TableLookupBytes(hn::LoadDup128(d, kFp4Levels), nibbles);
      }
      return nibbles;
    }
  }
  HWY_INLINE auto weight(int chunk, int v) const { return D::widen(integers(chunk, v)); }
  // The same of a chunk whose nibbles are the upper ones, shifted left by kUpperShift bits: they
  // stay where they lie. Of bytes, any chunk.
  static constexpr int kUpperShift = kInfo.stored_bits == 4 && kLayout != Layout::fp4 ? 4 : 0;
  HWY_INLINE auto upper(int chunk, int v) const {
    if constexpr (kUpperShift == 0) {
      return weight(chunk, v);
    } else {
      return D::widen(hn::And(bytes(chunk % 4, v), hn::Set(Bytes(), 0xf0)));
    }
  }
  HWY_INLINE auto half_floats(const uint8_t* from, int v) const {
    const hn::Rebind<hwy::float16_t, Floats> narrow;
    const auto* halves = reinterpret_cast<const hwy::float16_t*>(from + v / kParts * stride);
    return hn::PromoteTo(Floats(), hn::Load(narrow, halves + v % kParts * kLanes));
  }
  HWY_INLINE auto scale(int s, int v) const { return half_floats(scales + s * kGroup * 2, v); }
  HWY_INLINE auto min(int v) const { return half_floats(mins, v); }
};

// Initial value of a layout's integer accumulators.
template <Layout kLayout>
HWY_INLINE hn::Vec<Ints> start_of(const InputBlock& x, int s) {
  const Ints d;
  if constexpr (kLayout == Layout::q4) return hn::Set(d, x.start_8);
  if constexpr (kLayout == Layout::q5 || kLayout == Layout::fp4) return hn::Set(d, x.start_16);
  if constexpr (kLayout == Layout::q6) return hn::Set(d, x.start_32[s]);
  if constexpr (kLayout == Layout::q8) return hn::Set(d, x.start_128);
  return hn::Zero(d);
}

// The activations of a tile's tokens in one block of columns.
template <class D>
struct TileInput {
  const InputBlock* x;
  int64_t stride;  // in blocks, from token to token
  const int16_t* pairs;
  int64_t pairs_stride;

  HWY_INLINE auto four(int token, int chunk) const {
    return D::input(x[token * stride], D::kPairs ? pairs + token * pairs_stride : nullptr, chunk);
  }
};

// sums[v][t] += block x, for V vectors of rows and T tokens that are `stride` blocks apart.
template <Layout kLayout, int V, int T, class Block>
HWY_INLINE void add_block(const Block& block, const InputBlock* HWY_RESTRICT x, int64_t stride,
                          const int16_t* HWY_RESTRICT pairs, int64_t pairs_stride,
                          hn::Vec<Floats> (&sums)[V][T]) {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  using D = typename Block::D;
  constexpr int kScales = kBlock / kInfo.columns_per_scale, kChunks = 8 / kScales;
  const Floats d;
  const TileInput<D> input{x, stride, pairs, pairs_stride};
  for (int s = 0; s < kScales; ++s) {
    hn::Vec<Ints> acc[V][T];
    for (int t = 0; t < T; ++t) {
      const auto start = start_of<kLayout>(x[t * stride], s);
      for (int v = 0; v < V; ++v) acc[v][t] = start;
    }
    if constexpr (D::kDirect && Block::kTwoChains && V * T <= 2) {
      // Few sums: each in two chains, so that fewer dot products wait for the one before. The bytes
      // are read in the order of memory.
      constexpr bool kNibbles = Block::kUpperShift > 0;
      hn::Vec<Ints> upper[V][T];
      for (int i = 0; i < V * T; ++i) upper[i / T][i % T] = hn::Zero(Ints());
      for (int i = 0; i < kChunks / 2; ++i) {
        const int c = s * kChunks + (kNibbles ? i : 2 * i), next = c + (kNibbles ? kChunks / 2 : 1);
        for (int v = 0; v < V; ++v) {
          const auto low = block.weight(c, v), high = block.upper(next, v);
          for (int t = 0; t < T; ++t) {
            acc[v][t] = D::add(acc[v][t], low, input.four(t, c));
            upper[v][t] = D::add(upper[v][t], high, input.four(t, next));
          }
        }
      }
      for (int v = 0; v < V; ++v) {
        for (int t = 0; t < T; ++t) {
          acc[v][t] = hn::Add(acc[v][t], hn::ShiftRight<Block::kUpperShift>(upper[v][t]));
        }
      }
    } else if constexpr (D::kDirect) {
      for (int c = s * kChunks; c < (s + 1) * kChunks; ++c) {
        typename D::Weight w[V];
        for (int v = 0; v < V; ++v) w[v] = block.weight(c, v);
        for (int t = 0; t < T; ++t) {
          const auto xs = input.four(t, c);
          for (int v = 0; v < V; ++v) acc[v][t] = D::add(acc[v][t], w[v], xs);
        }
      }
    } else {
      constexpr int kRun = D::kRun < kChunks ? D::kRun : kChunks;
      for (int c = s * kChunks; c < (s + 1) * kChunks; c += kRun) {
        typename D::Part part[V][T];
        for (int i = 0; i < kRun; ++i) {
          typename D::Weight w[V];
          for (int v = 0; v < V; ++v) w[v] = block.weight(c + i, v);
          for (int t = 0; t < T; ++t) {
            const auto xs = input.four(t, c + i);
            for (int v = 0; v < V; ++v) {
              part[v][t] = i == 0 ? D::first(w[v], xs) : D::next(part[v][t], w[v], xs);
            }
          }
        }
        for (int v = 0; v < V; ++v) {
          for (int t = 0; t < T; ++t) acc[v][t] = D::flush(acc[v][t], part[v][t]);
        }
      }
    }
    for (int v = 0; v < V; ++v) {
      const auto scale = block.scale(s, v);
      for (int t = 0; t < T; ++t) {
        const auto both = hn::Mul(scale, hn::Set(d, x[t * stride].scale));
        sums[v][t] = hn::MulAdd(hn::ConvertTo(d, acc[v][t]), both, sums[v][t]);
      }
    }
  }
  if constexpr (kInfo.min) {
    for (int v = 0; v < V; ++v) {
      const auto min = block.min(v);
      for (int t = 0; t < T; ++t) {
        sums[v][t] = hn::MulAdd(min, hn::Set(d, x[t * stride].scaled_sum), sums[v][t]);
      }
    }
  }
}

// sums[t][r] += blocks [first, last) x T tokens; block_at(b) returns the weights of block b.
template <Layout kLayout, int V, int T, class BlockAt>
HWY_INLINE void block_tile(const BlockAt& block_at, int64_t first, int64_t last, const InputView& x,
                           int64_t token, float* HWY_RESTRICT sums) {
  const Floats d;
  hn::Vec<Floats> acc[V][T];
  const auto place = [&](int v, int t) {
    return sums + (v / kParts * kTokenBlock + t) * kGroup + v % kParts * kLanes;
  };
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < V; ++v) acc[v][t] = hn::LoadU(d, place(v, t));
  }
  const int64_t stride = x.blocks_stride, pairs_stride = x.pairs_stride;
  const InputBlock* at = x.blocks + token * stride + first;
  const int16_t* pairs = x.pairs + token * pairs_stride + first * kBlock;
  for (int64_t block = first; block < last; ++block, ++at, pairs += kBlock) {
    add_block<kLayout, V, T>(block_at(block), at, stride, pairs, pairs_stride, acc);
  }
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < V; ++v) hn::StoreU(acc[v][t], d, place(v, t));
  }
}

// Runs block_tile() over all tokens: full tiles first, then smaller and smaller ones.
template <Layout kLayout, int V, int T, class BlockAt>
HWY_INLINE void block_tiles(const BlockAt& block_at, int64_t first, int64_t last,
                            const InputView& x, int64_t token, int tokens, float* sums) {
  for (; tokens >= T; tokens -= T, token += T, sums += T * kGroup) {
    block_tile<kLayout, V, T>(block_at, first, last, x, token, sums);
  }
  if constexpr (T > 1) {
    if (tokens == 0) return;
    block_tiles<kLayout, V, (T + 1) / 2>(block_at, first, last, x, token, tokens, sums);
  }
}

// The blocks of a group, read in place.
// kAhead: two chains of dot products, and prefetches into the L2 and the L1 that run into the next
// groups. Prototypes read faster with both on an Emerald Rapids: a chain of eight fills the
// scheduler before enough loads are under way. Zen 4 reads up to 4 % more slowly.
template <Layout kLayout, bool kAhead>
struct StreamedBlocks {
  static constexpr int kFar = 9216, kNear = 4608, kBytes = layout_info(kLayout).pair_bytes();
  const std::byte* group;

  HWY_INLINE auto operator()(int64_t block) const {
    if (kAhead && block % 2 == 0) {
      const std::byte* const pair = group + block / 2 * kBytes;
      for (int line = 0; line < kBytes; line += 64) {
        __builtin_prefetch(pair + kFar + line, 0, 2);
        __builtin_prefetch(pair + kNear + line, 0, 3);
      }
    }
    return PackedBlock<kLayout, kAhead>(group, 0, block);
  }
};

template <Layout kLayout, bool kAhead>
void stream(const WeightView& w, int64_t group, const InputView& x, int token, int tokens,
            float* sums) {
  constexpr int kMost = Dot<layout_info(kLayout).value_bits>::kTokens;
  const StreamedBlocks<kLayout, kAhead> blocks{w.data + group * w.stride};
  std::fill_n(sums, tokens * kGroup, 0.0f);
  block_tiles<kLayout, kParts, kMost>(blocks, 0, w.columns / kBlock, x, token, tokens, sums);
}

template <Layout kLayout>
void unpack(const WeightView& w, int64_t group, int64_t column, std::byte* panel) {
  using Panel = PanelBlock<kLayout>;
  const Floats d;
  auto* to = reinterpret_cast<uint8_t*>(panel);
  const int64_t last = std::min(column + kChunk, w.columns) / kBlock;
  for (int64_t b = column / kBlock; b < last; ++b, to += Panel::kBytes) {
    const PackedBlock<kLayout> block(w.data + group * w.stride, 0, b);
    for (int v = 0; v < kParts; ++v) {
      for (int s = 0; s < Panel::kScales; ++s) {
        hn::Store(block.scale(s, v), d,
                  reinterpret_cast<float*>(to + s * kGroup * 4 + Panel::part(v)));
      }
      if constexpr (Panel::kInfo.min) {
        hn::Store(block.min(v), d, reinterpret_cast<float*>(to + Panel::kMins + Panel::part(v)));
      }
      for (int c = 0; c < 8; ++c) {
        Panel::D::store(block.weight(c, v),
                        to + Panel::kData + c * Panel::kChunkBytes + Panel::part(v));
      }
    }
  }
}

// ---- for tiles (matmul_amx.h)

using Words = hn::ScalableTag<uint32_t>;

template <int kByte>
HWY_INLINE hn::Vec<Floats> float_of_byte(hn::Vec<Words> four) {
  const auto one = hn::And(hn::ShiftRight<8 * kByte>(four), hn::Set(Words(), 0xff));
  return hn::ConvertTo(Floats(), hn::BitCast(Ints(), one));
}

// Two columns in a lane, `even` in its lower half, rounded to the nearest bf16, ties to even: what
// is cut off rounds up where it and 0x7fff and the last bit that stays exceed 16 bits.
HWY_INLINE hn::Vec<Words> bf16_pair(hn::Vec<Floats> even, hn::Vec<Floats> odd) {
  const Words d;
  const hn::Repartition<uint16_t, Words> halves;
  const auto low = hn::BitCast(d, even), high = hn::BitCast(d, odd);
  const auto stays = hn::OrAnd(hn::ShiftRight<16>(low), high, hn::Set(d, 0xffff0000));
  const auto cut = hn::OrAnd(hn::ShiftLeft<16>(high), low, hn::Set(d, 0xffff));
  const auto bias = hn::OrAnd(hn::Set(d, 0x7ffe7ffe), stays, hn::Set(d, 0x00010001));
  const auto sum = hn::AverageRound(hn::BitCast(halves, cut), hn::BitCast(halves, bias));
  return hn::BitCast(d, hn::Add(hn::BitCast(halves, stays), hn::ShiftRight<15>(sum)));
}

// The weights as bf16, in pairs of columns: [block][pair][row]. q scale is exact in f32, so that a
// weight is rounded there where it has a min, and once more to bf16.
template <Layout kLayout>
void unpack_bf16(const WeightView& w, int64_t group, int64_t column, std::byte* panel) {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  constexpr int kScales = kBlock / kInfo.columns_per_scale, kChunks = 8 / kScales;
  const Floats d;
  auto* to = reinterpret_cast<uint32_t*>(panel);
  const int64_t last = std::min(column + kChunk, w.columns) / kBlock;
  for (int64_t b = column / kBlock; b < last; ++b, to += kBlock / 2 * kGroup) {
    const PackedBlock<kLayout> block(w.data + group * w.stride, 0, b);
    for (int i = 0; i < kParts * kScales; ++i) {
      const int v = i % kParts, s = i / kParts;
      const auto scale = block.scale(s, v);
      auto start = hn::Mul(scale, hn::Set(d, float(-kInfo.offset)));
      if constexpr (kInfo.min) start = block.min(v);
#pragma GCC unroll 8
      for (int c = s * kChunks; c < (s + 1) * kChunks; ++c) {
        const auto four = hn::BitCast(Words(), block.integers(c, v));
        const auto q0 = hn::MulAdd(float_of_byte<0>(four), scale, start);
        const auto q1 = hn::MulAdd(float_of_byte<1>(four), scale, start);
        const auto q2 = hn::MulAdd(float_of_byte<2>(four), scale, start);
        const auto q3 = hn::MulAdd(float_of_byte<3>(four), scale, start);
        uint32_t* const pair = to + 2 * c * kGroup + v * kLanes;
        hn::Store(bf16_pair(q0, q1), Words(), pair);
        hn::Store(bf16_pair(q2, q3), Words(), pair + kGroup);
      }
    }
  }
}

// 8-bit weights that need no widening are read from the packed format: a panel would be a copy.
template <Layout kLayout>
constexpr bool kAsPacked = layout_info(kLayout).stored_bits == 8 && PanelBlock<kLayout>::D::kWide ==
                                                                        1;

// The blocks of a panel whose first block is `first`.
template <Layout kLayout>
struct PanelBlocks {
  const std::byte* panel;
  int64_t stride, first;

  HWY_INLINE auto operator()(int64_t block) const {
    if constexpr (kAsPacked<kLayout>) {
      return PackedBlock<kLayout>(panel, stride, block);
    } else {
      using Panel = PanelBlock<kLayout>;
      return Panel{reinterpret_cast<const uint8_t*>(panel) + (block - first) * Panel::kBytes};
    }
  }
};

template <Layout kLayout>
void multiply(const std::byte* panel, int64_t panel_stride, int groups, int64_t column,
              int64_t columns, const InputView& x, int token, int tokens, float* sums) {
  constexpr int kMost = PanelBlock<kLayout>::D::kTokens;
  const int64_t first = column / kBlock, last = std::min(column + kChunk, columns) / kBlock;
  const PanelBlocks<kLayout> blocks{panel, panel_stride, first};
  if constexpr (kPanelGroups == 2) {
    if (groups == 2) {
      return block_tiles<kLayout, 2 * kParts, kMost>(blocks, first, last, x, token, tokens, sums);
    }
  }
  block_tiles<kLayout, kParts, kMost>(blocks, first, last, x, token, tokens, sums);
}

template <Layout kLayout>
void set_kernel(const char* name, BlockKernels& kernels) {
  MatmulKernel& kernel = kernels.of[static_cast<int>(kLayout)];
  kernel.name = name;
  kernel.input = InputKind::int8;
  kernel.chunk = static_cast<int>(kChunk);
  kernel.panel_groups = kPanelGroups;
  kernel.token_block = PanelBlock<kLayout>::D::kPairs ? kTokenBlock / 2 : kTokenBlock;
  kernel.stream = stream<kLayout, false>;
  kernels.stream_ahead[static_cast<int>(kLayout)] = stream<kLayout, true>;
  if constexpr (!kAsPacked<kLayout>) kernel.unpack = unpack<kLayout>;
  kernel.multiply = multiply<kLayout>;
  kernels.bf16[static_cast<int>(kLayout)] = unpack_bf16<kLayout>;
  kernels.pairs |= PanelBlock<kLayout>::D::kPairs;
}

inline BlockKernels get_blocks(const char* isa) {
  BlockKernels kernels;
  kernels.isa = isa;
  set_kernel<Layout::q4>("4-bit x int8", kernels);
  set_kernel<Layout::q4_min>("4-bit + min x int8", kernels);
  set_kernel<Layout::q5>("5-bit x int8", kernels);
  set_kernel<Layout::q5_min>("5-bit + min x int8", kernels);
  set_kernel<Layout::q6>("6-bit x int8", kernels);
  set_kernel<Layout::q8>("8-bit x int8", kernels);
  set_kernel<Layout::fp4>("fp4 x int8", kernels);
  return kernels;
}
