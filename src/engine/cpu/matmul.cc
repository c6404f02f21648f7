#include "engine/cpu/matmul.h"

#include <fmt/format.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <atomic>
#include <cassert>

#include "engine/cpu/matmul_access.h"

namespace ridge::cpu {
namespace {

// Groups of 16 rows in a work item of prefill. Activations move from L3 to L2 once for all 64 rows
// (f32: 2 x 64 / 4 B = 32 operations a byte), and small matrices still have work for every thread.
// Tiles outrun that: see turn_groups().
constexpr int kTurnGroups = 4, kMostTurnGroups = 32;

// A GEMM and its kernels, looked up once.
struct Job {
  const Gemm* gemm;
  const MatmulKernel *kernel, *up_kernel;
  WeightView w, up;
  InputView x, up_x;
  int tokens;
  int64_t groups;
  double group_cost;
  bool streams_y = false;  // writes y past the caches
};

int tokens_of(const Gemm& gemm) { return gemm.tokens > 0 ? gemm.tokens : gemm.x->tokens(); }

Job make_job(const Gemm& gemm) {
  Job job;
  job.gemm = &gemm;
  job.tokens = tokens_of(gemm);
  job.kernel = &MatmulAccess::kernel(*gemm.w, job.tokens);
  job.w = MatmulAccess::weights(*gemm.w);
  job.x = MatmulAccess::input(*gemm.x, gemm.first);
  job.groups = group_count(gemm.w->rows());
  job.group_cost = MatmulAccess::group_cost(*gemm.w);
  job.up_kernel = nullptr;
  if (gemm.up) {
    assert(gemm.up->rows() == gemm.w->rows() && gemm.up->columns() == gemm.w->columns());
    job.up_kernel = &MatmulAccess::kernel(*gemm.up, job.tokens);
    job.up = MatmulAccess::weights(*gemm.up);
    job.group_cost += MatmulAccess::group_cost(*gemm.up);
  }
  return job;
}

// The kernels' begin() and end() around their use by a thread. Those of a gate and its up
// projection are the same wherever they have any.
class KernelScope {
 public:
  explicit KernelScope(const Job& job)
      : kernel_(job.kernel->begin || !job.up_kernel ? *job.kernel : *job.up_kernel) {
    if (kernel_.begin) kernel_.begin();
  }
  ~KernelScope() {
    if (kernel_.end) kernel_.end();
  }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  const MatmulKernel& kernel_;
};

void finish_groups(const Job& job, int64_t first, int64_t last, int token, int tokens,
                   const float* sums, const float* up, int64_t group_stride) {
  const Gemm& gemm = *job.gemm;
  const int64_t row = first * kGroup;
  Epilogue e;
  if (gemm.to) {
    e.stride = MatmulAccess::bf16_stride(*gemm.to);
    e.bf16 = MatmulAccess::bf16_row(*gemm.to, token) + row;
  } else {
    e.y = gemm.y + token * gemm.stride + row;
    e.stride = gemm.stride;
    e.streams = job.streams_y;
  }
  e.rows = static_cast<int>(std::min(last * kGroup, job.w.rows) - row);
  e.tokens = tokens;
  e.bias = gemm.bias ? gemm.bias + row : nullptr;
  e.up_bias = gemm.up_bias ? gemm.up_bias + row : nullptr;
  e.accumulate = gemm.accumulate;
  e.sums = sums;
  e.up = gemm.up ? up : nullptr;
  e.group_stride = group_stride;
  e.activation = gemm.activation;
  matmul_kernels().plain.finish(e);
}

// Whether the GEMM reads its weights as it multiplies, or unpacks them into panels first. Several
// slices of tokens must find a group's weights in the L2, of which most CPUs have 1 MB or more.
bool streams(const Job& job) {
  constexpr double kMostCached = 512 << 10;
  if (job.tokens > kStreamSlice && job.group_cost > kMostCached) return false;
  return job.tokens <= job.kernel->stream_tokens &&
         (!job.up_kernel || job.tokens <= job.up_kernel->stream_tokens);
}

// Computes groups [first, last) of a small-M GEMM. Gate and up alternate, so that both stream. More
// than kStreamSlice tokens are cut into equal slices, of which all but the first find the group's
// weights in the L2.
void stream_groups(const Job& job, int64_t first, int64_t last) {
  alignas(64) float sums[kStreamSlice * kGroup], up[kStreamSlice * kGroup];
  const int slices = (job.tokens + kStreamSlice - 1) / kStreamSlice;
  const int each = (job.tokens + slices - 1) / slices;
  for (int64_t g = first; g < last; ++g) {
    for (int token = 0; token < job.tokens; token += each) {
      const int tokens = std::min(each, job.tokens - token);
      job.kernel->stream(job.w, g, job.x, token, tokens, sums);
      if (job.up_kernel) job.up_kernel->stream(job.up, g, job.x, token, tokens, up);
      finish_groups(job, g, g + 1, token, tokens, sums, up, 0);
    }
  }
}

// Scratch of a thread: the unpacked panel of one chunk, and sums[g][t][16].
struct Scratch {
  alignas(64) std::byte panel[kScratchBytes];
  alignas(64) float sums[2][kMostTurnGroups * kTokenBlock * kGroup];
};

// Fetches the lines of y that finish_groups() will write.
void prefetch_results(const Job& job, int64_t first, int64_t last, int token, int tokens) {
  const Gemm& gemm = *job.gemm;
  if (job.streams_y) return;
  for (int t = token; t < token + tokens; ++t) {
    if (gemm.to) {  // 32 rows are a line
      __builtin_prefetch(MatmulAccess::bf16_row(*gemm.to, t) + first * kGroup, 1, 3);
      continue;
    }
    float* const y = gemm.y + t * gemm.stride + first * kGroup;
    for (int64_t g = 0; g < last - first; ++g) __builtin_prefetch(y + g * kGroup, 1, 3);
  }
}

// Computes sums of groups [first, last). Calls soon(group, groups, token, tokens) before the last
// multiplications of a part of them, and done() of the same when it is complete, while it is in
// the L1. after() is the panel that the thread unpacks next, after all of these; called where the
// kernel prefetches.
template <class Soon, class Done, class After>
void multiply_groups(const MatmulKernel& kernel, const WeightView& w, const InputView& x,
                     int64_t first, int64_t last, int token, int tokens, std::byte* scratch,
                     float* sums, const Soon& soon, const Done& done, const After& after) {
  // Tokens between two batches of prefetches, unless the kernel spreads them.
  const int slice_tokens = kernel.multiply_ahead ? kernel.token_tile : 2 * kernel.token_tile;
  const int slices = (tokens + slice_tokens - 1) / slice_tokens;
  for (int64_t g = 0; g < last - first && !kernel.starts_sums; ++g) {
    std::fill_n(sums + g * kTokenBlock * kGroup, tokens * kGroup, 0.0f);
  }
  for (int64_t column = 0; column < w.columns; column += kernel.chunk) {
    for (int64_t g = first; g < last; g += kernel.panel_groups) {
      const int count = static_cast<int>(std::min<int64_t>(kernel.panel_groups, last - g));
      const std::byte* panel = kernel.unpack ? scratch : w.data + g * w.stride;
      const int64_t panel_stride = kernel.unpack ? kPanelBytes : w.stride;
      for (int i = 0; i < count && kernel.unpack; ++i) {
        kernel.unpack(w, g + i, column, scratch + i * kPanelBytes);
      }
      const bool turn_ends = g + count == last;
      const int64_t next = turn_ends ? first : g + count;
      const int64_t next_column = turn_ends ? column + kernel.chunk : column;
      float* const group_sums = sums + (g - first) * kTokenBlock * kGroup;
      PanelLines lines;
      if (next_column < w.columns) {
        const int64_t ahead = std::min<int64_t>(kernel.panel_groups, last - next);
        lines = PanelLines(w, next, ahead, next_column, kernel.chunk);
      } else if (kernel.multiply_ahead) {
        lines = after();
      }
      const int64_t lines_each = (lines.left() + slices - 1) / slices;
      for (int slice = 0; slice < slices; ++slice) {
        const int t = slice * slice_tokens, count_tokens = std::min(slice_tokens, tokens - t);
        const bool completes = column + kernel.chunk >= w.columns;
        if (completes) soon(g, count, token + t, count_tokens);
        float* const to = group_sums + t * kGroup;
        if (kernel.multiply_ahead) {
          kernel.multiply_ahead(panel, panel_stride, count, column, w.columns, x, token + t,
                                count_tokens, to, lines, lines_each);
        } else {
          lines.prefetch(lines_each);
          kernel.multiply(panel, panel_stride, count, column, w.columns, x, token + t, count_tokens,
                          to);
        }
        if (completes) done(g, count, token + t, count_tokens);
      }
    }
  }
}

// Blocks of tokens, about equal, as small as both kernels need them.
int token_block(const Job& job) {
  int most = job.kernel->token_block;
  if (job.up_kernel) most = std::min(most, job.up_kernel->token_block);
  const int blocks = (job.tokens + most - 1) / most;
  return std::min(
      most, static_cast<int>(round_up((job.tokens + blocks - 1) / blocks, job.kernel->token_tile)));
}

// What a kernel unpacks first of groups [first, last).
PanelLines first_panel(const MatmulKernel& kernel, const WeightView& w, int64_t first,
                       int64_t last) {
  const int64_t groups = std::min<int64_t>(kernel.panel_groups, last - first);
  return {w, first, groups, 0, kernel.chunk};
}

// Groups [first, last) for tokens [begin, end).
template <class After>
void panel_groups(const Job& job, int64_t first, int64_t last, int begin, int end, Scratch& scratch,
                  const After& after) {
  const int each = token_block(job);
  for (int token = begin; token < end; token += each) {
    const int tokens = std::min(each, end - token);
    const auto finish = [&](int64_t group, int groups, int from, int count) {
      const int64_t at = ((group - first) * kTokenBlock + from - token) * kGroup;
      finish_groups(job, group, group + groups, from, count, scratch.sums[0] + at,
                    scratch.sums[1] + at, kTokenBlock * kGroup);
    };
    const auto fetch = [&](int64_t group, int groups, int from, int count) {
      prefetch_results(job, group, group + groups, from, count);
    };
    const auto nothing = [](int64_t, int, int, int) {};
    if (!job.up_kernel) {
      multiply_groups(*job.kernel, job.w, job.x, first, last, token, tokens, scratch.panel,
                      scratch.sums[0], fetch, finish, after);
    } else {
      multiply_groups(*job.kernel, job.w, job.x, first, last, token, tokens, scratch.panel,
                      scratch.sums[0], nothing, nothing,
                      [&] { return first_panel(*job.up_kernel, job.up, first, last); });
      multiply_groups(*job.up_kernel, job.up, job.x, first, last, token, tokens, scratch.panel,
                      scratch.sums[1], fetch, finish, after);
    }
  }
}

// Concatenates the groups of all jobs and divides their bytes into equal parts, one per thread. A
// thread computes the groups that start in its part.
void stream_share(std::span<const Job> jobs, int index, int threads) {
  double total = 0;
  for (const Job& job : jobs) total += double(job.groups) * job.group_cost;
  double start = 0;
  for (const Job& job : jobs) {
    const auto boundary = [&](int i) {
      const double group = (total * i / threads - start) / job.group_cost;
      return std::clamp(static_cast<int64_t>(group + 0.5), int64_t{0}, job.groups);
    };
    const int64_t first = index == 0 ? 0 : boundary(index);
    const int64_t last = index == threads - 1 ? job.groups : boundary(index + 1);
    const KernelScope scope(job);
    stream_groups(job, first, last);
    start += double(job.groups) * job.group_cost;
  }
}

// Where rows alternate under one block of tokens, its activations stay in the L2 up to this size.
// Larger ones come from the L3 for every item, a chunk of columns at a time: then items have as
// many rows as leave two for each thread.
int turn_groups(const Job& job, int64_t token_blocks, int threads) {
  constexpr int64_t kStays = 1 << 20;
  int groups = kTurnGroups;
  const bool stays = int64_t{token_block(job)} * job.w.columns * 2 <= kStays;
  if (!job.kernel->tokens_outer || stays) return groups;
  while (groups < kMostTurnGroups && job.groups / (2 * groups) * token_blocks >= 2 * threads) {
    groups *= 2;
  }
  return groups;
}

// Work items of some groups, for all tokens or, where the kernel wants that, for a block of them;
// each thread takes the next item when it is free, or when it multiplies the last panel of an item:
// it prefetches the first panel of the next one meanwhile.
void panel_share(std::span<const Job> jobs, std::atomic<int64_t>& next, int threads) {
  static_assert(kScratchBytes >= 2 * kPanelBytes);
  Scratch scratch;
  int64_t start = 0;
  int64_t turn = next.fetch_add(1, std::memory_order_relaxed);
  for (const Job& job : jobs) {
    const int each = job.kernel->tokens_outer ? token_block(job) : job.tokens;
    const int64_t token_blocks = (job.tokens + each - 1) / each;
    const int rows_each = turn_groups(job, token_blocks, threads);
    const int64_t of_rows = (job.groups + rows_each - 1) / rows_each;
    const int64_t turns = of_rows * token_blocks;
    const KernelScope scope(job);
    while (turn < start + turns) {
      const int64_t first = (turn - start) % of_rows * rows_each;
      const int token = static_cast<int>((turn - start) / of_rows) * each;
      const int64_t taken = turn;
      const auto after = [&] {
        if (turn != taken) return PanelLines();  // a later block of tokens
        turn = next.fetch_add(1, std::memory_order_relaxed);
        if (turn >= start + turns) return PanelLines();
        return first_panel(*job.kernel, job.w, (turn - start) % of_rows * rows_each, job.groups);
      };
      panel_groups(job, first, std::min(first + rows_each, job.groups), token,
                   std::min(token + each, job.tokens), scratch, after);
      if (turn == taken) turn = next.fetch_add(1, std::memory_order_relaxed);
    }
    start += turns;
  }
  // Streamed stores reach the others' view of memory before this thread says that it is done.
  if (std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.streams_y; })) {
    hwy::FlushStream();
  }
}

// Results of more than an L2 are read again from beyond it in any case. Writing past the caches
// then saves reading the lines first. Measured with tiles alone.
void stream_large_results(std::span<Job> jobs) {
  constexpr double kL2 = 2 << 20;
  double bytes = 0;
  const auto streamable = [](const Job& job) {
    return job.kernel->multiply_ahead && !job.up_kernel && !job.gemm->accumulate && !job.gemm->to;
  };
  for (const Job& job : jobs) {
    if (streamable(job)) bytes += double(job.tokens) * double(job.w.rows) * sizeof(float);
  }
  for (Job& job : jobs) job.streams_y = bytes > kL2 && streamable(job);
}

}  // namespace

void multiply(ThreadTeam& team, std::span<const Gemm> gemms) {
  constexpr size_t kMost = 16;  // jobs in one parallel region; more jobs use several regions
  for (; gemms.size() > kMost; gemms = gemms.subspan(kMost)) {
    multiply(team, gemms.first(kMost));
  }
  Job streamed[kMost], panelled[kMost];
  size_t streamed_count = 0, panelled_count = 0;
  for (const Gemm& gemm : gemms) {
    if (tokens_of(gemm) == 0 || gemm.w->rows() == 0) continue;
    const Job job = make_job(gemm);
    (streams(job) ? streamed[streamed_count++] : panelled[panelled_count++]) = job;
  }
  if (streamed_count + panelled_count == 0) return;
  stream_large_results({panelled, panelled_count});
  std::atomic<int64_t> next = 0;
  team.run([&](int index) {
    if (streamed_count > 0) stream_share({streamed, streamed_count}, index, team.size());
    if (panelled_count > 0) panel_share({panelled, panelled_count}, next, team.size());
  });
}

std::string kernel_name(Storage storage, bool invariant) {
  const MatmulKernels& kernels = matmul_kernels();
  const bool plain = layout_of(storage) == Layout::plain;
  const MatmulKernel &few = kernels.of(storage), &many = kernels.of(storage, kTiledTokens);
  const std::string name =
      fmt::format("{} {}", plain ? kernels.plain.isa : kernels.blocks.isa, few.name);
  if (invariant || &many == &few) return name;
  return fmt::format("{}, from {} tokens {} {}", name, kTiledTokens, kernels.plain.isa, many.name);
}

}  // namespace ridge::cpu
