// Attention of one row's query heads that share a KV head, over a span of pages in the ring; this
// step's own tokens are written into the latest page there. Flash decoding: each warp takes whole
// pages and keeps maximum, sum and output; the warps' states are joined in shared memory, the
// splits' by the SM that arrives last.
#pragma once

#include "engine/cuda/attention/page_attention.cuh"
#include "engine/cuda/decode/decode_shared.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// Writes this step's tokens of the row's sequence, up to the row itself, into the page in shared
// memory; the row's own also into the cache. Loads come first: each takes as long as all of them.
template <int kD, KvFormat kKv>
__device__ inline void add_own(const DecodeArgs& args, const Shared& shared, const Op& op,
                               const Span& span, uint8_t* page, int lane) {
  const RowContext& row = shared.fixed.rows[span.row];
  constexpr int kHeadDim = 16 * kD, kEach = kHeadDim / 32;
  const int columns = (args.heads + 2 * args.kv_heads) * kHeadDim;
  const int g = lane / 4, t = lane % 4, own = span.row - row.first;
  const float* keys =
      args.qkv_out + size_t(row.first) * columns + (args.heads + span.kv_head) * kHeadDim;
  const float* values = keys + args.kv_heads * kHeadDim;
  const float* norm = args.k_norm ? args.k_norm + op.layer * kHeadDim : nullptr;
  const int slot = span.position % kPageTokens - own;  // of the step's first token
  const int number = args.pages[row.pages + span.position / kPageTokens];
  HeadVector<kD> key;
  load_head<kD>(key, keys + size_t(g) * columns, g <= own, t);
  float value[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) value[i] = __ldcg(values + lane + 32 * i);

  uint8_t* cached =
      args.kv + ((size_t(op.layer) * args.cache_pages + number) * args.kv_heads + span.kv_head) *
                    page_bytes(kKv, kHeadDim);
#pragma unroll 1
  for (int token = 0; token <= own; ++token) {
    write_value<kD, kKv>(value, slot + token, lane, page, token == own ? cached : nullptr);
    if (token == own) break;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      value[i] = __ldcg(values + size_t(token + 1) * columns + lane + 32 * i);
    }
  }
#pragma unroll 1
  for (int token = g; token <= (own | 7); token += 8) {
    const bool there = token <= own;
    if (token >= 8) load_head<kD>(key, keys + size_t(token) * columns, there, t);
    norm_and_rope<kD>(key, norm, args.norm_eps,
                      shared.rotation + (there ? row.first + token : 0) * 8 * kD, t);
    write_key<kD, kKv>(key, there, slot + token, t, page, token == own ? cached : nullptr);
  }
  __syncwarp();
}

// Joins the splits' states; one output. A record: outputs, then maxima and sums of the heads.
__device__ inline float joined(const float* records, int splits, int record, int outputs, int group,
                               int o, int head) {
  float most = kMaskedScore, sum = 0, out = 0;
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

template <int kRows, int kD, KvFormat kKv>
__device__ inline void attention_of(const DecodeArgs& args, Shared& shared, const Op& op, int stage,
                                    int warp, int lane, PipelineState& place) {
  constexpr int kHeadDim = 16 * kD, kWorkers = kConsumers * 32;
  constexpr int kPadded = kHeadDim + 8;  // heads of a quad's lanes in different banks
  Fixed& fixed = shared.fixed;
  const int group = args.heads / args.kv_heads, outputs = group * kHeadDim;
  const int columns = (args.heads + 2 * args.kv_heads) * kHeadDim;
  constexpr int kPage = page_bytes(kKv, kHeadDim);
  const int per_stage = min(32, stage / kPage);
  const int g = lane / 4, t = lane % 4, thread = warp * 32 + lane;
  float* const area = reinterpret_cast<float*>(shared.x);  // free now: for warps' states

  // This step's queries, keys and values are there. Also without a span to attend to: or this SM
  // would say that it is done before the finishing warp waits for it, and once more.
  wait_met(fixed, op.index, lane);
  if (thread == 0) stamp(args, op, 0);
  for (int item = op.first; item < op.items; item += gridDim.x) {
    const Span span = span_of(args, fixed.rows, op, item);
    if (span.split >= span.splits) continue;
    const int parts = min(kConsumers, span.page_count);
    // The latest page comes first. The last warp completes it for the first one, which has its own
    // loads to wait for.
    if (span.own && warp == kConsumers - 1) {
      ptx::mbarrier_wait(&fixed.full[place.stage], place.phase);
      add_own<kD, kKv>(args, shared, op, span, shared.ring + place.stage * stage, lane);
      ptx::fence_proxy_async_shared();  // a bulk copy comes next to where it has written
      ptx::bar_sync<2>(64);
    }
    SoftmaxState<kD> state;
    HeadFragment<kD> q = {};
    float scale[2] = {};
    if (warp < parts) {
      const int head = span.kv_head * group + g;
      HeadVector<kD> floats;
      load_head<kD>(floats, args.qkv_out + size_t(span.row) * columns + head * kHeadDim, g < group,
                    t);
      norm_and_rope<kD>(floats, args.q_norm ? args.q_norm + op.layer * kHeadDim : nullptr,
                        args.norm_eps, shared.rotation + span.row * 8 * kD, t);
      score_scale<kKv>(scale, args.query_scale, pack_query<kD, kKv>(q, floats), t);
    }
    if (span.own && warp == 0) ptx::bar_sync<2>(64);
#pragma unroll 1
    for (int p = 0; p < span.page_count; p += per_stage) {
      ptx::mbarrier_wait(&fixed.full[place.stage], place.phase);
#pragma unroll 1
      for (int i = p; i < min(p + per_stage, span.page_count); ++i) {
        if (i % kConsumers != warp) continue;
        attend_page<kD, kKv>(
            state, q, scale, args.attention_softcap,
            (span.first_page + span.page_count - 1 - i) * kPageTokens,
            [&](int token, int) { return token >= span.low && token <= span.position; }, lane,
            shared.ring + place.stage * stage + (i - p) * kPage);
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&fixed.empty[place.stage]);
      place.advance(args.stages);
    }
    // Warps' states into shared memory; each thread joins its outputs.
    finish_softmax<kD, kKv>(state);
    if (g == 0) {
      fixed.most[warp][t * 2] = state.max[0], fixed.most[warp][t * 2 + 1] = state.max[1];
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
    ptx::bar_sync<1>(kWorkers);
    const auto write = [&](int o, float value) {
      const int k = span.kv_head * outputs + o;
      args.attention_out[activation_at(k, span.row, kRows)] = bf16_bits(value);
    };
    const int record = outputs + 2 * group;
    float* to = args.split_partials + size_t(item) * record;
#pragma unroll 1
    for (int o = thread; o < outputs; o += kWorkers) {
      const int head = o / kHeadDim;
      float most = kMaskedScore, sum = 0, result = 0;
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
      ptx::bar_sync<1>(kWorkers);
      const int pair = item / op.splits;
      if (thread == 0) {
        const unsigned before = ptx::atom_release_increment(&args.split_arrivals[pair]);
        fixed.last = before == static_cast<unsigned>(span.splits - 1);
        if (fixed.last) args.split_arrivals[pair] = 0;
      }
      ptx::bar_sync<1>(kWorkers);
      if (fixed.last) {
        const float* from = args.split_partials + size_t(pair) * op.splits * record;
#pragma unroll 1
        for (int o = thread; o < outputs; o += kWorkers) {
          write(o, joined(from, span.splits, record, outputs, group, o, o / kHeadDim));
        }
      }
    }
    if (span.own && warp == kConsumers - 1)
      ptx::fence_proxy_async();  // the next step's bulk copies read what it cached
    ptx::bar_sync<1>(kWorkers);
  }
}

template <int kRows>
__device__ inline void attention(const DecodeArgs& args, Shared& shared, const Op& op, int stage,
                                 int warp, int lane, PipelineState& place) {
  // Opaque: what depends on them would be kept in registers all the time, for once a layer.
  asm volatile("" : "+r"(warp), "+r"(lane));
  const auto of = [&](auto kv) {
    constexpr KvFormat kKv = decltype(kv)::value;
    if (args.head_dim == 128) {
      attention_of<kRows, 8, kKv>(args, shared, op, stage, warp, lane, place);
    } else {
      attention_of<kRows, 4, kKv>(args, shared, op, stage, warp, lane, place);
    }
  };
  switch (args.kv_format) {
    case KvFormat::bf16:
      return of(std::integral_constant<KvFormat, KvFormat::bf16>());
    case KvFormat::f16:
      return of(std::integral_constant<KvFormat, KvFormat::f16>());
    case KvFormat::fp8:
      return of(std::integral_constant<KvFormat, KvFormat::fp8>());
    case KvFormat::int8:
      return of(std::integral_constant<KvFormat, KvFormat::int8>());
  }
}

}  // namespace ridge::cuda
#endif
