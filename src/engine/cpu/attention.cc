#include "engine/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cassert>

#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/attention_rows.h"

namespace ridge::cpu {
namespace {

// With fewer jobs than this per thread, long jobs are split into spans.
constexpr int kJobsPerThread = 4;

// Buffers that the calling thread keeps between calls. Nothing is allocated once they have grown.
struct Plans {
  std::vector<AttentionJob> jobs;
  std::vector<AttentionJob> spans;
  std::vector<int> first_span;  // index into `spans` per job, and the end
  AttentionScratch partials;
};

// Rows of a job. Where all heads share one KV head, a step of few tokens has a few dozen rows:
// every thread gets some, although each then reads the same keys.
int job_rows(const AttentionRules& rules, const LayerCache& cache,
             std::span<const AttentionSlice> slices, int threads) {
  if (cache.latent_dim == 0) return kMaxRows;
  int rows = 0;
  for (const AttentionSlice& slice : slices)
    rows = std::min(rows + slice.fresh, kMaxRows * threads);
  constexpr int kLeast = 6;  // of a register tile
  return std::clamp((rows * rules.heads + threads - 1) / threads, kLeast, kMaxRows);
}

std::atomic<AttentionTiles>& tiles_in_use() {
  static std::atomic<AttentionTiles> tiles =
      amx_is_usable() ? AttentionTiles::amx : AttentionTiles::none;
  return tiles;
}

// Latent attention runs in f32, because its values would have to be transposed. So do f32 caches,
// which users choose where rounding matters.
AttentionTiles tiles_of(const AttentionRules& rules, const LayerCache& cache,
                        const AttentionSlice& slice) {
  if (!rules.tiles || slice.fresh < kTiledQueries) return AttentionTiles::none;
  if (cache.latent_dim > 0 || cache.storage == KvStorage::f32) return AttentionTiles::none;
  return attention_tiles();
}

// Rows of a job in tiles. Each job converts the keys and values that it sees, so that more rows
// convert less often (128 rows: 7 % of the time), as long as there are jobs for all threads.
int tiled_job_rows(const AttentionRules& rules, std::span<const AttentionSlice> slices,
                   int threads) {
  int64_t rows = 0;
  for (const AttentionSlice& slice : slices) rows += int64_t{slice.fresh} * rules.heads;
  return rows >= int64_t{kTiledRows} * kJobsPerThread * threads ? kTiledRows : kTiledRows / 2;
}

// Lists the longest jobs of a slice first: the last jobs to start are then short, and the threads
// finish together.
void list_jobs(const AttentionRules& rules, const LayerCache& cache,
               std::span<const AttentionSlice> slices, int threads,
               std::vector<AttentionJob>& jobs) {
  jobs.clear();
  const int vector_rows = job_rows(rules, cache, slices, threads);
  const int tiled_rows = tiled_job_rows(rules, slices, threads);
  const int group = rules.heads / cache.kv_heads;
  for (const AttentionSlice& slice : slices) {
    const int rows = slice.fresh * group;
    const AttentionTiles tiles = tiles_of(rules, cache, slice);
    const int most = tiles == AttentionTiles::none ? vector_rows : tiled_rows;
    const int blocks = (rows + most - 1) / most;
    for (int block = blocks - 1; block >= 0; --block) {
      AttentionJob job;
      job.slice = &slice;
      job.tiles = tiles;
      job.row = block * most;
      job.rows = std::min(most, rows - job.row);
      const int first_position = slice.past + job.row / group;
      job.begin = rules.first_key(first_position);
      job.end = slice.past + (job.row + job.rows - 1) / group + 1;
      for (job.kv_head = 0; job.kv_head < cache.kv_heads; ++job.kv_head) jobs.push_back(job);
    }
  }
}

// Splits every job into spans, each with memory for a partial result.
void cut_into_spans(int value_dim, Plans& plans) {
  plans.spans.clear();
  plans.first_span.clear();
  size_t floats = 0;
  for (const AttentionJob& job : plans.jobs) {
    plans.first_span.push_back(static_cast<int>(plans.spans.size()));
    for (int span = job.begin / kSpan * kSpan; span < job.end; span += kSpan) {
      AttentionJob part = job;
      part.begin = std::max(job.begin, span);
      part.end = std::min(job.end, span + kSpan);
      plans.spans.push_back(part);
      floats += state_floats(size_t(job.rows), value_dim);
    }
  }
  plans.first_span.push_back(static_cast<int>(plans.spans.size()));
  float* at = plans.partials.reserve(floats);
  for (AttentionJob& part : plans.spans) {
    part.partial = at;
    at += state_floats(size_t(part.rows), value_dim);
  }
}

void run_jobs(ThreadTeam& team, const AttentionCall& call, std::span<const AttentionJob> jobs) {
  std::atomic<size_t> next = 0;
  team.run([&](int) {
    thread_local AttentionScratch scratch;
    for (size_t i = next++; i < jobs.size(); i = next++) attend(call, jobs[i], scratch);
  });
}

void merge_jobs(ThreadTeam& team, const AttentionCall& call, const Plans& plans) {
  std::atomic<size_t> next = 0;
  team.run([&](int) {
    constexpr size_t kRows = std::max(kMaxRows, kTiledRows);
    for (size_t i = next++; i < plans.jobs.size() * kRows; i = next++) {
      const size_t job = i / kRows;
      const int row = static_cast<int>(i % kRows);
      if (row >= plans.jobs[job].rows) continue;
      const int first = plans.first_span[job];
      merge_spans(call, &plans.spans[size_t(first)], plans.first_span[job + 1] - first, row);
    }
  });
}

}  // namespace

AttentionTiles attention_tiles() { return tiles_in_use(); }
void choose_attention_tiles(AttentionTiles tiles) { tiles_in_use() = tiles; }

void attention(ThreadTeam& team, const AttentionRules& rules, const LayerCache& cache,
               std::span<const AttentionSlice> slices, const float* q, int64_t q_stride, float* out,
               int64_t out_stride) {
  assert(cache.page_tokens % kKeyGroup == 0);
  assert(cache.head_dim % 8 == 0 && cache.head_dim <= kMaxHeadDim);
  assert(cache.latent_dim % 8 == 0 && cache.latent_dim <= cache.head_dim);
  assert(rules.heads % cache.kv_heads == 0);
  thread_local Plans plans;
  const AttentionCall call{rules, cache, q, q_stride, out, out_stride};
  list_jobs(rules, cache, slices, team.size(), plans.jobs);
  const bool few = plans.jobs.size() < size_t(kJobsPerThread * team.size());
  const bool is_long = std::any_of(plans.jobs.begin(), plans.jobs.end(), [](const auto& job) {
    return job.begin / kSpan != (job.end - 1) / kSpan;
  });
  if (!few || !is_long || team.size() == 1) {
    run_jobs(team, call, plans.jobs);
    return;
  }
  cut_into_spans(cache.value_dim(), plans);
  run_jobs(team, call, plans.spans);
  merge_jobs(team, call, plans);
}

}  // namespace ridge::cpu
