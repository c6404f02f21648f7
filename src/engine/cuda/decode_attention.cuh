// Attention of one row's query heads that share a KV head, over a span of pages in the ring; this
// step's own tokens are written into the latest page there. Flash decoding: each warp takes whole
// pages and keeps maximum, sum and output; the warps' states are joined in shared memory, the
// splits' by the SM that arrives last.
//
// Heads are columns of the MMA (at most 8): scores = K (tokens x d) q, output = V^T (d x tokens) p.
#pragma once

#include "engine/cuda/decode_shared.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

constexpr float kLog2e = 1.4426950408889634f;
// Finite, so that a difference of two is zero and not NaN.
constexpr float kNone = -1e30f;

// kD: head_dim / 16. The state of 8 heads in one warp; lane 4 g + t has heads 2t, 2t + 1.
template <int kD>
struct State {
  float most[2] = {kNone, kNone}, sum[2] = {0, 0};  // sum: of this lane's tokens
  float out[kD][4] = {};
};

// Pairs of a vector of 16 kD elements: 16 j + 2 t + {0, 1} at [j][0], 8 further at [j][1].
template <int kD>
using Pairs = uint32_t[kD][2];

// A vector's floats, as the four lanes of a quad hold them: pair [j][h] is 16 j + 8 h + 2 t.
template <int kD>
using Floats = float2[kD][2];

// Zeros where it is not `there`.
template <int kD>
__device__ inline void load(Floats<kD>& to, const float* from, bool there, int t) {
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[j][h] = there ? __ldcg(reinterpret_cast<const float2*>(from + j * 16 + h * 8 + t * 2))
                       : float2{0, 0};
    }
  }
}

// Normed and turned by its position.
template <int kD>
__device__ inline void turn(Pairs<kD>& to, Floats<kD>& v, const float* norm, float eps,
                            const float2* rotation, int t) {
  if (norm) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) squares += v[j][h].x * v[j][h].x + v[j][h].y * v[j][h].y;
    }
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    const float scale = rsqrtf(squares / (16.0f * kD) + eps);
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 w = *reinterpret_cast<const float2*>(norm + j * 16 + h * 8 + t * 2);
        v[j][h] = {v[j][h].x * scale * w.x, v[j][h].y * scale * w.y};
      }
    }
  }
  // Element i turns with i + 8 kD, which the same lane has: unit u of 8 with unit u + kD.
#pragma unroll
  for (int u = 0; u < kD; ++u) {
    const float2 a = rotation[u * 8 + t * 2], b = rotation[u * 8 + t * 2 + 1];
    float2& low = v[u / 2][u % 2];
    float2& high = v[(u + kD) / 2][(u + kD) % 2];
    const float2 x = low, y = high;
    low = {x.x * a.x - y.x * a.y, x.y * b.x - y.y * b.y};
    high = {y.x * a.x + x.x * a.y, y.y * b.x + x.y * b.y};
  }
#pragma unroll
  for (int j = 0; j < kD; ++j) {
    to[j][0] = pack_bf16(v[j][0].x, v[j][0].y);
    to[j][1] = pack_bf16(v[j][1].x, v[j][1].y);
  }
}

// 16 tokens of a page in shared memory, of which the first is `begin` in the sequence; those
// outside [low, high) do not count.
template <int kD>
__device__ inline void attend(const DecodeArgs& args, State<kD>& state, const Pairs<kD>& q,
                              int begin, int low, int high, int lane, const uint8_t* page) {
  // Of 16 x 16: the first row halves, then the second k halves; tokens' halves lie kHalf apart.
  constexpr int kHalf = 256 * kD;
  const uint32_t row = shared_address(page) + lane % 8 * 16, a = lane / 8 % 2, b = lane / 16;
  const uint32_t keys = row + a * kHalf + b * 128, values = row + 2 * kHalf + b * kHalf + a * 128;
  float even[4] = {}, odd[4] = {};  // two chains: an MMA waits for the one before it
#pragma unroll
  for (int j = 0; j < kD; ++j) {
    const uint4 k = load_matrices(keys + j * 256);
    mma(j % 2 ? odd : even, k.x, k.y, k.z, k.w, uint2{q[j][0], q[j][1]});
  }
  const float scale = args.query_scale;
  const float cap = args.attention_softcap;
  float s[4];
#pragma unroll
  for (int v = 0; v < 4; ++v) {
    float score = (even[v] + odd[v]) * scale;
    if (cap > 0) score = cap * tanhf(score / cap);
    const int token = begin + lane / 4 + v / 2 * 8;
    s[v] = token >= low && token < high ? score * kLog2e : kNone;
  }
  float shrink[2], p[4];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    float most = fmaxf(s[c], s[c + 2]);
#pragma unroll
    for (int across = 4; across <= 16; across *= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, across));
    }
    most = fmaxf(most, state.most[c]);
    shrink[c] = exp2f(state.most[c] - most);
    state.most[c] = most;
    p[c] = s[c] > kNone ? exp2f(s[c] - most) : 0.0f;
    p[c + 2] = s[c + 2] > kNone ? exp2f(s[c + 2] - most) : 0.0f;
    state.sum[c] = state.sum[c] * shrink[c] + p[c] + p[c + 2];
  }
  // D has tokens as rows, B wants them as k: an 8 x 8 transposition in registers.
  uint2 weights = {pack_bf16(p[0], p[1]), pack_bf16(p[2], p[3])};
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(weights.x));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(weights.y));
#pragma unroll
  for (int j = 0; j < kD; ++j) {
    const uint4 v = load_matrices(values + j * 256);
    state.out[j][0] *= shrink[0], state.out[j][1] *= shrink[1];
    state.out[j][2] *= shrink[0], state.out[j][3] *= shrink[1];
    mma(state.out[j], v.x, v.y, v.z, v.w, weights);
  }
}

// Writes this step's tokens of the row's sequence, up to the row itself, into the page in shared
// memory; the row's own also into the cache. Loads come first: each takes as long as all of them.
template <int kD>
__device__ inline void add_own(const DecodeArgs& args, const Shared& shared, const Op& op,
                               const Span& span, uint16_t* page, int lane) {
  const Row& row = shared.fixed.rows[span.row];
  constexpr int kHeadDim = 16 * kD, kEach = kHeadDim / 32;
  const int columns = (args.heads + 2 * args.kv_heads) * kHeadDim;
  const int g = lane / 4, t = lane % 4, own = span.row - row.first;
  const float* keys =
      args.qkv_rows + size_t(row.first) * columns + (args.heads + span.kv_head) * kHeadDim;
  const float* values = keys + args.kv_heads * kHeadDim;
  const float* norm = args.k_norm ? args.k_norm + op.layer * kHeadDim : nullptr;
  const int slot = span.position % kPageTokens - own;  // of the step's first token
  const int number = args.pages[row.pages + span.position / kPageTokens];
  Floats<kD> key;
  load<kD>(key, keys + size_t(g) * columns, g <= own, t);
  float value[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) value[i] = __ldcg(values + lane + 32 * i);

  uint16_t* cached =
      args.kv + ((size_t(op.layer) * args.cache_pages + number) * args.kv_heads + span.kv_head) *
                    page_elements(kHeadDim);
#pragma unroll 1
  for (int token = 0; token <= own; ++token) {
    const int at = value_at(slot + token, lane, kHeadDim);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint16_t bits = bf16_bits(value[i]);
      page[at + i * 256] = bits;  // 32 dimensions further are four matrices further
      if (token == own) cached[at + i * 256] = bits;
      if (token < own) value[i] = __ldcg(values + size_t(token + 1) * columns + lane + 32 * i);
    }
  }
#pragma unroll 1
  for (int token = g; token <= (own | 7); token += 8) {
    const bool there = token <= own;
    if (token >= 8) load<kD>(key, keys + size_t(token) * columns, there, t);
    Pairs<kD> turned;
    turn<kD>(turned, key, norm, args.norm_eps,
             shared.rotation + (there ? row.first + token : 0) * 8 * kD, t);
    if (!there) continue;
    const int at = key_at(slot + token, t * 2, kHeadDim);
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<uint32_t*>(page + at + j * 128 + h * 64) = turned[j][h];
        if (token == own) {
          *reinterpret_cast<uint32_t*>(cached + at + j * 128 + h * 64) = turned[j][h];
        }
      }
    }
  }
  __syncwarp();
}

// Joins the splits' states; one output. A record: outputs, then maxima and sums of the heads.
__device__ inline float joined(const float* records, int splits, int record, int outputs, int group,
                               int o, int head) {
  float most = kNone, sum = 0, out = 0;
#pragma unroll 2
  for (int i = 0; i < splits; ++i) {
    const float* from = records + i * record;
    const float its_most = __ldcg(from + outputs + head);
    const float its_sum = __ldcg(from + outputs + group + head), its_out = __ldcg(from + o);
    const float both = fmaxf(most, its_most);
    const float keep = exp2f(most - both), add = exp2f(its_most - both);
    sum = sum * keep + its_sum * add;
    out = out * keep + its_out * add;
    most = both;
  }
  return out / sum;
}

template <int kRows, int kD>
__device__ inline void attention_of(const DecodeArgs& args, Shared& shared, const Op& op, int stage,
                                    int warp, int lane, Place& place) {
  constexpr int kHeadDim = 16 * kD, kWorkers = kConsumers * 32;
  constexpr int kPadded = kHeadDim + 8;  // heads of a quad's lanes in different banks
  Fixed& fixed = shared.fixed;
  const int group = args.heads / args.kv_heads, outputs = group * kHeadDim;
  const int columns = (args.heads + 2 * args.kv_heads) * kHeadDim;
  const int page_bytes = page_elements(kHeadDim) * 2, per_stage = min(32, stage / page_bytes);
  const int g = lane / 4, t = lane % 4, thread = warp * 32 + lane;
  float* const area = reinterpret_cast<float*>(shared.x);  // free now: for warps' states

  for (int item = op.first; item < op.items; item += gridDim.x) {
    const Span span = span_of(args, fixed.rows, op, item);
    if (span.split >= span.splits) continue;
    if (item == op.first) {
      wait_met(fixed, op.index, lane);
      if (thread == 0) stamp(args, op, 0);
    }
    const int parts = min(kConsumers, span.page_count);
    // The latest page comes first. The last warp completes it for the first one, which has its own
    // loads to wait for.
    if (span.own && warp == kConsumers - 1) {
      wait(&fixed.full[place.slot], place.parity);
      add_own<kD>(args, shared, op, span,
                  reinterpret_cast<uint16_t*>(shared.ring + place.slot * stage), lane);
      fence_proxy_shared();  // a bulk copy comes next to where it has written
      meet<2>(64);
    }
    State<kD> state;
    Pairs<kD> q = {};
    if (warp < parts) {
      const int head = span.kv_head * group + g;
      Floats<kD> floats;
      load<kD>(floats, args.qkv_rows + size_t(span.row) * columns + head * kHeadDim, g < group, t);
      turn<kD>(q, floats, args.q_norm ? args.q_norm + op.layer * kHeadDim : nullptr, args.norm_eps,
               shared.rotation + span.row * 8 * kD, t);
    }
    if (span.own && warp == 0) meet<2>(64);
#pragma unroll 1
    for (int p = 0; p < span.page_count; p += per_stage) {
      wait(&fixed.full[place.slot], place.parity);
#pragma unroll 1
      for (int i = p; i < min(p + per_stage, span.page_count); ++i) {
        if (i % kConsumers != warp) continue;
        attend<kD>(args, state, q, (span.first_page + span.page_count - 1 - i) * kPageTokens,
                   span.low, span.position + 1, lane,
                   shared.ring + place.slot * stage + (i - p) * page_bytes);
      }
      __syncwarp();
      if (lane == 0) arrive(&fixed.empty[place.slot]);
      place.advance(args.ring_slots);
    }
    // Warps' states into shared memory; each thread joins its outputs.
#pragma unroll
    for (int across = 4; across <= 16; across *= 2) {
      state.sum[0] += __shfl_xor_sync(0xffffffffu, state.sum[0], across);
      state.sum[1] += __shfl_xor_sync(0xffffffffu, state.sum[1], across);
    }
    if (g == 0) {
      fixed.most[warp][t * 2] = state.most[0], fixed.most[warp][t * 2 + 1] = state.most[1];
      fixed.sum[warp][t * 2] = state.sum[0], fixed.sum[warp][t * 2 + 1] = state.sum[1];
    }
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int head = t * 2 + v % 2;
        if (head < group) {
          area[(warp * group + head) * kPadded + j * 16 + g + v / 2 * 8] = state.out[j][v];
        }
      }
    }
    meet<1>(kWorkers);
    const auto write = [&](int o, float value) {
      const int k = span.kv_head * outputs + o;
      args.attended[activation_at(k, span.row, kRows)] = bf16_bits(value);
    };
    const int record = outputs + 2 * group;
    float* to = args.partial + size_t(item) * record;
#pragma unroll 1
    for (int o = thread; o < outputs; o += kWorkers) {
      const int head = o / kHeadDim;
      float most = kNone, sum = 0, result = 0;
#pragma unroll
      for (int w = 0; w < kConsumers; ++w) most = fmaxf(most, fixed.most[w][head]);
#pragma unroll
      for (int w = 0; w < kConsumers; ++w) {
        const float share = exp2f(fixed.most[w][head] - most);
        sum += share * fixed.sum[w][head];
        result += share * area[(w * group + head) * kPadded + o % kHeadDim];
      }
      if (span.splits == 1) {
        write(o, result / sum);
      } else {
        to[o] = result;
        if (o % kHeadDim == 0) to[outputs + head] = most, to[outputs + group + head] = sum;
      }
    }
    if (span.splits > 1) {
      meet<1>(kWorkers);
      const int pair = item / op.splits;
      if (thread == 0) {
        const unsigned before = add_releasing(&args.arrived[pair]);
        fixed.last = before == static_cast<unsigned>(span.splits - 1);
        if (fixed.last) args.arrived[pair] = 0;
      }
      meet<1>(kWorkers);
      if (fixed.last) {
        const float* from = args.partial + size_t(pair) * op.splits * record;
#pragma unroll 1
        for (int o = thread; o < outputs; o += kWorkers) {
          write(o, joined(from, span.splits, record, outputs, group, o, o / kHeadDim));
        }
      }
    }
    if (span.own && warp == kConsumers - 1)
      fence_proxy();  // the next step's bulk copies read what it cached
    meet<1>(kWorkers);
  }
}

template <int kRows>
__device__ inline void attention(const DecodeArgs& args, Shared& shared, const Op& op, int stage,
                                 int warp, int lane, Place& place) {
  // Opaque: what depends on them would be kept in registers all the time, for once a layer.
  asm volatile("" : "+r"(warp), "+r"(lane));
  if (args.head_dim == 128) {
    attention_of<kRows, 8>(args, shared, op, stage, warp, lane, place);
  } else {
    attention_of<kRows, 4>(args, shared, op, stage, warp, lane, place);
  }
}

}  // namespace ridge::cuda
#endif
