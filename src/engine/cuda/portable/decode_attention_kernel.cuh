// Decode attention of portable/attention.cuh: O = softmax(q K^T) V of one token, for up to 8 query
// heads of a KV head, over a split of up to kPortableSplitPages pages. q has its norm and RoPE, and
// the token's key and value are in the cache.
//
// A block of 4 warps has one split. Each warp copies its next page into shared memory by cp.async
// and keeps an online softmax of 8 columns over every fourth page (page_attention.cuh). Then the
// block combines the warps' states: into the output, or into the partial record of the split. The
// last block of a token to arrive combines the records in order (FlashDecoding).
//
//   shared memory: page[4 warps], and later in the same place out[4 warps][8 columns][head_dim + 4]
#pragma once

#include "base/ptx/async_copy.cuh"
#include "base/ptx/execution.cuh"
#include "engine/cuda/attention/page_attention.cuh"
#include "engine/cuda/portable/attention.cuh"

namespace ridge::cuda {

constexpr int kPortableDecodeWarps = 4, kPortableDecodeThreads = kPortableDecodeWarps * 32;

template <int kD, KvFormat kFormat>
struct PortableDecode {
  static constexpr int kHeadDim = 16 * kD;
  static constexpr int kPageBytes = page_bytes(kFormat, kHeadDim);
  static constexpr int kOutStride = kHeadDim + 4;  // avoids bank conflicts between columns
  static constexpr int kOutBytes = kPortableDecodeWarps * 8 * kOutStride * 4;
  static constexpr int kSharedBytes =
      kOutBytes > kPortableDecodeWarps* kPageBytes ? kOutBytes : kPortableDecodeWarps* kPageBytes;
  static constexpr int kQuads = kHeadDim / 4;  // float4s of a column's output
  // A partial record: outputs, then (maximum, sum) of each column.
  static constexpr int kRecord = partial_record_size(kHeadDim), kRecordSums = 8 * kHeadDim;

  const PortableDecodeLaunch& launch;
  const PortableDecodeItem& item;
  uint8_t* const shared;
  float2 (&max_sum)[kPortableDecodeWarps][8];
  const int kv_head, lane, warp;

  // The queries of this lane's column (lane / 4), as B operands. Returns the factor of its scores.
  __device__ __forceinline__ float load_queries(HeadFragment<kD>& to) const {
    const AttentionArgs& args = launch.args;
    const int in_group = item.column + lane / 4, t = lane % 4;
    const bool valid = in_group < launch.group;
    const uint16_t* from =
        args.q + (size_t(item.row) * args.heads + kv_head * launch.group + (valid ? in_group : 0)) *
                     kHeadDim;
    HeadVector<kD> query;
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t pair = *reinterpret_cast<const uint32_t*>(from + j * 16 + h * 8 + t * 2);
        query[j][h] = valid ? __bfloat1622float2(pair_of(pair)) : float2{0, 0};
      }
    }
    return pack_query<kD, kFormat>(to, query);
  }

  __device__ __forceinline__ void attend(SoftmaxState<kD>& state) const {
    const AttentionArgs& args = launch.args;
    HeadFragment<kD> q;
    float scale[2];
    const float factor = load_queries(q);
    score_scale<kFormat>(scale, args.scale, factor, lane % 4);
    const int high = item.position + 1, low = args.window > 0 ? max(0, high - args.window) : 0;
    uint8_t* page = shared + warp * kPageBytes;
    const uint32_t to = ptx::shared_address(page);
#pragma unroll 1
    for (int p = item.first_page + warp; p < item.end_page; p += kPortableDecodeWarps) {
      const size_t number = args.pages[item.pages + p];
      const uint8_t* from = args.kv + (number * args.kv_heads + kv_head) * kPageBytes;
      __syncwarp();  // the page before has been read
#pragma unroll
      for (int i = lane; i < kPageBytes / 16; i += 32) ptx::cp_async_16(to + i * 16, from + i * 16);
      ptx::cp_async_wait_all();
      __syncwarp();
      attend_page<kD, kFormat>(
          state, q, scale, args.softcap, p * kPageTokens,
          [&](int token, int) { return token >= low && token < high; }, lane, page);
    }
    finish_softmax<kD, kFormat>(state);
  }

  // Four outputs of a column. `total`: maximum and sum of its softmax, without the sink.
  __device__ __forceinline__ void write(int column, int d, const float4& out, float2 total) const {
    if (item.column + column >= launch.group) return;
    const int head = kv_head * launch.group + item.column + column;
    float sum = total.y;
    if (launch.args.sinks) {
      constexpr float kExponent = kFormat == KvFormat::bf16 ? 0 : kF16Exponent;  // of the weights
      sum += exp2f(fminf(launch.args.sinks[head] * kLog2e - total.x + kExponent, 120.0f));
    }
    const float inverse = 1 / sum;
    *reinterpret_cast<uint2*>(launch.args.out +
                              wide_at(head * kHeadDim + d, item.row, launch.args.out_tokens)) = {
        pack_bf16(out.x * inverse, out.y * inverse), pack_bf16(out.z * inverse, out.w * inverse)};
  }

  // The weighted sum of `count` softmax states, in order.
  template <typename MaxSum, typename Out>
  static __device__ __forceinline__ float4 combine(int count, const MaxSum& max_sum_of,
                                                   const Out& out_of, float2& total) {
    total = {kMaskedScore, 0};
    float4 sum = {0, 0, 0, 0};
    for (int i = 0; i < count; ++i) total.x = fmaxf(total.x, max_sum_of(i).x);
    for (int i = 0; i < count; ++i) {
      const float2 part = max_sum_of(i);
      const float weight = exp2f(part.x - total.x);
      const float4 out = out_of(i);
      total.y += weight * part.y;
      sum = {sum.x + weight * out.x, sum.y + weight * out.y, sum.z + weight * out.z,
             sum.w + weight * out.w};
    }
    return sum;
  }

  __device__ __forceinline__ void combine_warps(const SoftmaxState<kD>& state) const {
    float* const out = reinterpret_cast<float*>(shared);  // [warp][column][kOutStride]
    const int g = lane / 4, t = lane % 4;
    __syncthreads();  // all pages have been read
    if (g == 0) {
      max_sum[warp][t * 2] = {state.max[0], state.sum[0]};
      max_sum[warp][t * 2 + 1] = {state.max[1], state.sum[1]};
    }
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        out[(warp * 8 + t * 2 + v % 2) * kOutStride + j * 16 + g + v / 2 * 8] = state.out[j][v];
      }
    }
    __syncthreads();
    float* record = launch.partials + size_t(record_of(item.split)) * kRecord;
#pragma unroll 1
    for (int o = threadIdx.x; o < 8 * kQuads; o += kPortableDecodeThreads) {
      const int column = o / kQuads, d = o % kQuads * 4;
      float2 total;
      const float4 sum = combine(
          kPortableDecodeWarps, [&](int w) { return max_sum[w][column]; },
          [&](int w) {
            return *reinterpret_cast<const float4*>(out + (w * 8 + column) * kOutStride + d);
          },
          total);
      if (item.splits == 1) {
        write(column, d, sum, total);
      } else {
        *reinterpret_cast<float4*>(record + o * 4) = sum;
        if (d == 0) *reinterpret_cast<float2*>(record + kRecordSums + column * 2) = total;
      }
    }
  }

  __device__ __forceinline__ int record_of(int split) const {
    return item.partial + kv_head * item.splits + split;
  }

  // The last block of the token's splits to arrive writes the output.
  __device__ __forceinline__ void combine_splits() const {
    int& last = *reinterpret_cast<int*>(shared);
    __threadfence();
    __syncthreads();
    unsigned* arrived = launch.arrived + item.counter + kv_head;
    if (threadIdx.x == 0) last = atomicAdd(arrived, 1u) == unsigned(item.splits - 1);
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (threadIdx.x == 0) *arrived = 0;
    const float* records = launch.partials + size_t(record_of(0)) * kRecord;
#pragma unroll 1
    for (int o = threadIdx.x; o < 8 * kQuads; o += kPortableDecodeThreads) {
      const int column = o / kQuads;
      float2 total;
      const float4 sum = combine(
          item.splits,
          [&](int i) {
            return __ldcg(
                reinterpret_cast<const float2*>(records + i * kRecord + kRecordSums + column * 2));
          },
          [&](int i) {
            return __ldcg(reinterpret_cast<const float4*>(records + i * kRecord + o * 4));
          },
          total);
      write(column, o % kQuads * 4, sum, total);
    }
  }
};

// Block (x, y) of the grid has item x of KV head y.
template <int kD, KvFormat kFormat>
__global__ void __launch_bounds__(kPortableDecodeThreads)
    portable_decode_kernel(const __grid_constant__ PortableDecodeLaunch launch) {
  extern __shared__ __align__(128) uint8_t portable_decode_shared[];
  __shared__ float2 max_sum[kPortableDecodeWarps][8];
  const PortableDecodeItem item = launch.items[blockIdx.x];
  const PortableDecode<kD, kFormat> block{launch,
                                          item,
                                          portable_decode_shared,
                                          max_sum,
                                          int(blockIdx.y),
                                          int(threadIdx.x % 32),
                                          int(threadIdx.x / 32)};
  SoftmaxState<kD> state;
  block.attend(state);
  block.combine_warps(state);
  if (item.splits > 1) block.combine_splits();
}

}  // namespace ridge::cuda
