// GEMMs with packed block formats (pack.h): lanes are rows, so there are no sums across lanes.
//
// No include guard: included after dot-inl.h, once in every namespace that is compiled for another
// instruction set.

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

// The same block in the packed format; groups are `stride` bytes apart.
template <Layout kLayout>
struct PackedBlock {
  static constexpr LayoutInfo kInfo = layout_info(kLayout);
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
  HWY_INLINE auto weight(int chunk, int v) const {
    if constexpr (kInfo.stored_bits == 8) {
      return D::widen(bytes(chunk, v));
    } else {
      const Bytes d;
      const auto both = bytes(chunk % 4, v);
      const hn::Repartition<uint16_t, Bytes> wide;  // there is no shift of 8-bit lanes
      const auto high = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(wide, both)));
      return D::widen(hn::And(chunk < 4 ? both : high, hn::Set(d, 15)));
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
  if constexpr (kLayout == Layout::q5) return hn::Set(d, x.start_16);
  if constexpr (kLayout == Layout::q6) return hn::Set(d, x.start_32[s]);
  if constexpr (kLayout == Layout::q8) return hn::Set(d, x.start_128);
  return hn::Zero(d);
}

// sums[v][t] += block x, for V vectors of rows and T tokens that are `stride` blocks apart.
template <Layout kLayout, int V, int T, class Block>
HWY_INLINE void add_block(const Block& block, const InputBlock* HWY_RESTRICT x, int64_t stride,
                          const int16_t* HWY_RESTRICT pairs, int64_t pairs_stride,
                          hn::Vec<Floats> (&sums)[V][T]) {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  using D = Dot<kInfo.value_bits>;
  constexpr int kScales = kBlock / kInfo.columns_per_scale, kChunks = 8 / kScales;
  const Floats d;
  const auto four = [&](int t, int c) HWY_ATTR {
    return D::input(x[t * stride], D::kPairs ? pairs + t * pairs_stride : nullptr, c);
  };
  for (int s = 0; s < kScales; ++s) {
    hn::Vec<Ints> acc[V][T];
    for (int t = 0; t < T; ++t) {
      const auto start = start_of<kLayout>(x[t * stride], s);
      for (int v = 0; v < V; ++v) acc[v][t] = start;
    }
    if constexpr (D::kDirect) {
      for (int c = s * kChunks; c < (s + 1) * kChunks; ++c) {
        typename D::Weight w[V];
        for (int v = 0; v < V; ++v) w[v] = block.weight(c, v);
        for (int t = 0; t < T; ++t) {
          const auto xs = four(t, c);
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
            const auto xs = four(t, c + i);
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

template <Layout kLayout>
void stream(const WeightView& w, int64_t group, const InputView& x, int token, int tokens,
            float* sums) {
  constexpr int kMost = Dot<layout_info(kLayout).value_bits>::kTokens;
  const std::byte* const from = w.data + group * w.stride;
  std::fill_n(sums, tokens * kGroup, 0.0f);
  const auto block_at = [&](int64_t block) { return PackedBlock<kLayout>(from, 0, block); };
  block_tiles<kLayout, kParts, kMost>(block_at, 0, w.columns / kBlock, x, token, tokens, sums);
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

// 8-bit weights that need no widening are read from the packed format: a panel would be a copy.
template <Layout kLayout>
constexpr bool kAsPacked = layout_info(kLayout).stored_bits == 8 && PanelBlock<kLayout>::D::kWide ==
                                                                        1;

template <Layout kLayout>
void multiply(const std::byte* panel, int64_t panel_stride, int groups, int64_t column,
              int64_t columns, const InputView& x, int token, int tokens, float* sums) {
  using Panel = PanelBlock<kLayout>;
  constexpr int kMost = Panel::D::kTokens;
  const int64_t first = column / kBlock, last = std::min(column + kChunk, columns) / kBlock;
  const auto block_at = [&](int64_t b) HWY_ATTR {
    if constexpr (kAsPacked<kLayout>) {
      return PackedBlock<kLayout>(panel, panel_stride, b);
    } else {
      return Panel{reinterpret_cast<const uint8_t*>(panel) + (b - first) * Panel::kBytes};
    }
  };
  if constexpr (kPanelGroups == 2) {
    if (groups == 2) {
      return block_tiles<kLayout, 2 * kParts, kMost>(block_at, first, last, x, token, tokens, sums);
    }
  }
  block_tiles<kLayout, kParts, kMost>(block_at, first, last, x, token, tokens, sums);
}

template <Layout kLayout>
void set_kernel(const char* name, BlockKernels& kernels) {
  MatmulKernel& kernel = kernels.of[static_cast<int>(kLayout)];
  kernel.name = name;
  kernel.input = InputKind::int8;
  kernel.chunk = static_cast<int>(kChunk);
  kernel.panel_groups = kPanelGroups;
  kernel.token_block = PanelBlock<kLayout>::D::kPairs ? kTokenBlock / 2 : kTokenBlock;
  kernel.stream = stream<kLayout>;
  if constexpr (!kAsPacked<kLayout>) kernel.unpack = unpack<kLayout>;
  kernel.multiply = multiply<kLayout>;
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
  return kernels;
}
