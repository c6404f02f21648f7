// The producer warps of the decode attention kernel (decode_attention_kernel.cuh): KV pages,
// queries, and the append of the step's keys and values.
#pragma once

#include "base/ptx/execution.cuh"
#include "engine/cuda/attention/decode_attention_layout.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// RoPE's (cosine, sine) of a position, by one warp.
template <int kD>
__device__ inline void compute_rotation(float2* to, const AttentionArgs& args, int position,
                                        int lane) {
#pragma unroll 1
  for (int i = lane; i < 8 * kD; i += 32) {
    float sine, cosine;
    const float frequency = args.frequency[i];
    const float magnitude = frequency == 0 ? 1 : args.magnitude;  // 0: not rotated
    sincosf(static_cast<float>(position) * frequency, &sine, &cosine);
    to[i] = {cosine * magnitude, sine * magnitude};
  }
}

template <int kD, KvFormat kFormat>
struct DecodeProducers {
  using Shape = DecodeAttentionShape<kD, kFormat>;
  static constexpr int kHeadDim = Shape::kHeadDim;
  const DecodeAttentionLaunch& launch;
  DecodeAttentionShared<kD, kFormat>& shared;
  const int lane;

  // Stages of an item, and of this part of it: stages part, part + parts, ...
  static __device__ int stage_count(const DecodeItem& item) {
    return (item.page_count + Shape::kStagePages - 1) / Shape::kStagePages;
  }
  static __device__ int part_stages(const DecodeItem& item) {
    return item.page_count > 0 ? (stage_count(item) - item.part - 1 >> item.log2_parts) + 1 : 0;
  }
  // Pages of this part. The last stage of the item may have fewer than the others.
  static __device__ int part_pages(const DecodeItem& item) {
    const int stages = part_stages(item), last = (stages - 1 << item.log2_parts) + item.part;
    return item.page_count > 0
               ? (stages - 1) * Shape::kStagePages +
                     min(Shape::kStagePages, item.page_count - last * Shape::kStagePages)
               : 0;
  }
  // Waits for the n-th stage of this block.
  __device__ uint8_t* wait_stage(unsigned n) const {
    ptx::mbarrier_wait(&shared.full[n % Shape::kSlots], n / Shape::kSlots & 1);
    return shared.ring[n % Shape::kSlots];
  }
  __device__ int qkv_columns() const {
    return (launch.args.heads + 2 * launch.args.kv_heads) * kHeadDim;
  }

  // The mbarriers are initialized. Every role calls it once, after it has issued its first loads.
  static __device__ void sync_barrier_init() { __syncthreads(); }

  // Page numbers are read 32 at a time, a batch ahead.
  struct PageBatch {
    int count = 0, kv_head;
    int number;            // this lane's page
    bool written_by_step;  // other kernels of this step write to these pages
  };
  struct PageScheduler {
    DecodeScheduler scheduler;
    DecodeItem item = {};
    int done = 0, pages = 0;  // of this part of the item
    // Latest pages first.
    __device__ PageBatch next(const DecodeAttentionLaunch& launch, int lane) {
      PageBatch batch;
      if (done >= pages) item = scheduler.next(), done = 0, pages = part_pages(item);
      batch.count = min(32, pages - done);
      if (batch.count == 0) return batch;
      batch.kv_head = item.kv_head;
      batch.written_by_step = item.rows > 1;
      constexpr int kEach = Shape::kStagePages;
      const int at = done + min(lane, batch.count - 1);
      const int from_latest = ((at / kEach << item.log2_parts) + item.part) * kEach + at % kEach;
      const int page = item.first_page + item.page_count - 1 - from_latest;
      batch.number = launch.args.pages[item.pages + page];
      done += batch.count;
      return batch;
    }
  };

  // KV producer: keeps the ring full, item after item. Up to kIssueStages stages are issued
  // together, one lane per page; the first lane of a stage waits for its slot.
  __device__ void produce_pages() const {
    PageScheduler scheduler{DecodeScheduler(launch)};
    PageBatch now = scheduler.next(launch, lane);
    sync_barrier_init();
    const uint64_t policy = ptx::createpolicy_evict_first();
    unsigned issued = 0;  // stages
#pragma unroll 1
    while (now.count > 0) {
      const PageBatch ahead = scheduler.next(launch, lane);
      if (now.written_by_step) ptx::griddepcontrol_wait();
#pragma unroll 1
      for (int p = 0; p < now.count; p += kIssueStages * Shape::kStagePages) {
        const int count = min(kIssueStages * Shape::kStagePages, now.count - p);  // pages
        const int number = __shfl_sync(0xffffffffu, now.number, (p + lane) % 32);
        const unsigned n = issued + lane / Shape::kStagePages;  // this lane's stage
        const int slot = n % Shape::kSlots, in_stage = lane % Shape::kStagePages;
        if (lane < count && in_stage == 0) {
          if (n >= Shape::kStagesInFlight) wait_stage(n - Shape::kStagesInFlight);
          ptx::mbarrier_wait(&shared.empty[slot], n / Shape::kSlots & 1 ^ 1);
          ptx::mbarrier_arrive_expect_tx(&shared.full[slot],
                                         min(Shape::kStagePages, count - lane) * Shape::kPageBytes);
        }
        __syncwarp();
        if (lane < count) {
          ptx::cp_async_bulk(
              shared.ring[slot] + in_stage * Shape::kPageBytes,
              launch.args.kv +
                  (size_t(number) * launch.args.kv_heads + now.kv_head) * Shape::kPageBytes,
              Shape::kPageBytes, &shared.full[slot], policy);
        }
        issued += (count + Shape::kStagePages - 1) / Shape::kStagePages;
        if (lane == 0) *const_cast<volatile unsigned*>(&shared.stages_issued) = issued;
      }
      now = ahead;
    }
  }

  // Query producer: norm and RoPE of an item's queries, an item ahead of attention.
  __device__ void produce_queries() const {
    const AttentionArgs& args = launch.args;
    const int g = lane / 4, t = lane % 4, group = launch.group.by;
    DecodeScheduler scheduler(launch);
    sync_barrier_init();
#pragma unroll 1
    for (int n = 0;; ++n) {
      const DecodeItem item = scheduler.next();
      const int to = n % kQueryStages;
      if (item.page_count == 0) {
        ptx::mbarrier_wait(&shared.queries_empty[to], n / kQueryStages & 1 ^ 1);
        if (lane == 0) {
          shared.items[n % kItemRing].page_count = 0;
          ptx::mbarrier_arrive(&shared.queries_full[to]);
        }
        return;
      }
      const int packed = item.rows * group, column = item.column + g;
      const int first = launch.group.quotient(item.column);
      const int token = launch.group.quotient(min(column, packed - 1));
      const int last = launch.group.quotient(min(item.column + kQueryColumns, packed) - 1);
#pragma unroll 1
      for (int i = first; i <= last; ++i) {
        compute_rotation<kD>(shared.rotation[i - first], args, item.first + item.past + i, lane);
      }
      __syncwarp();
      ptx::griddepcontrol_wait();
      HeadVector<kD> query;
      const int head = item.kv_head * group + column - token * group;
      load_head<kD>(query, args.qkv + size_t(item.row + token) * qkv_columns() + head * kHeadDim,
                    column < packed, t);
      norm_and_rope<kD>(query, args.q_norm, args.eps, shared.rotation[token - first], t);
      HeadFragment<kD> q;
      const float factor = pack_query<kD, kFormat>(q, query);
      ptx::mbarrier_wait(&shared.queries_empty[to], n / kQueryStages & 1 ^ 1);
#pragma unroll
      for (int j = 0; j < kD; ++j) shared.queries[to][j][lane] = {q[j][0], q[j][1]};
      if (t == 0) shared.scale[to][g] = args.scale * factor;
      if (lane == 0) shared.items[n % kItemRing] = item;
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.queries_full[to]);
    }
  }

  // Append: where a sequence has one token in this step, writes its key and value into the latest
  // page, in the ring and in the cache. Items of several column groups repeat it in the ring only.
  __device__ void append_kv() const {
    const AttentionArgs& args = launch.args;
    DecodeScheduler scheduler(launch);
    sync_barrier_init();
    unsigned first_stage = 0;
#pragma unroll 1
    for (int n = 0;; ++n) {
      const DecodeItem item = scheduler.next();
      const int page = item.past / kPageTokens;
      const bool appends =
          item.rows == 1 && item.part == 0 && item.first_page + item.page_count == page + 1;
      if (appends) {
        compute_rotation<kD>(shared.append_rotation, args, item.first + item.past, lane);
        const int number = args.pages[item.pages + page];
        uint8_t* cached =
            item.column == 0
                ? args.kv + (size_t(number) * args.kv_heads + item.kv_head) * Shape::kPageBytes
                : nullptr;
        __syncwarp();
        ptx::griddepcontrol_wait();
        const float* from =
            args.qkv + size_t(item.row) * qkv_columns() + (args.heads + item.kv_head) * kHeadDim;
        HeadVector<kD> key;
        load_head<kD>(key, from, lane < 4, lane % 4);
        float value[kD / 2];
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) {
          value[i] = __ldcg(from + args.kv_heads * kHeadDim + lane + 32 * i);
        }
        norm_and_rope<kD>(key, args.k_norm, args.eps, shared.append_rotation, lane % 4);
        // This warp does not follow the slot's earlier phases: it may wait for the stage only once
        // its load has been issued, and the phase before it is over.
        while (*const_cast<volatile unsigned*>(&shared.stages_issued) <= first_stage) {
          __nanosleep(64);
        }
        uint8_t* latest = wait_stage(first_stage);
        const int slot = item.past % kPageTokens;
        write_key<kD, kFormat>(key, lane < 4, slot, lane % 4, latest, cached);
        write_value<kD, kFormat>(value, slot, lane, latest, cached);
        ptx::fence_proxy_async_shared();  // the slot's next bulk copy comes after these stores
      }
      first_stage += part_stages(item);
      ptx::mbarrier_wait(&shared.queries_empty[n % kQueryStages], n / kQueryStages & 1 ^ 1);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.queries_full[n % kQueryStages]);
      if (item.page_count == 0) return;
    }
  }
};

}  // namespace ridge::cuda
#endif
