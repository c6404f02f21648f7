#include "engine/cpu/matmul.h"

#include <fmt/format.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <new>

#include "base/mapped_buffer.h"
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
  const PlainKernels& kernels = matmul_kernels().plain;
  (kernels.finish_pair && is_plain_pair(e) ? kernels.finish_pair : kernels.finish)(e);
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

// In huge pages: the sums of one item may have 270 small ones.
Scratch& thread_scratch() {
  static_assert(kScratchBytes >= 2 * kPanelBytes);
  thread_local const MappedBuffer memory(sizeof(Scratch));
  if (!memory) throw std::bad_alloc();
  return *memory.as<Scratch>();
}

// The lines of y that finish_groups() will write.
Lines result_lines(const Job& job, int64_t group, int64_t groups, int token, int tokens) {
  const Gemm& gemm = *job.gemm;
  if (job.streams_y) return {};
  const int64_t row = group * kGroup, rows = groups * kGroup;
  if (gemm.to) {
    return {MatmulAccess::bf16_row(*gemm.to, token) + row, tokens, rows * 2,
            MatmulAccess::bf16_stride(*gemm.to) * 2};
  }
  return {gemm.y + token * gemm.stride + row, tokens, rows * 4, gemm.stride * 4};
}

// Computes sums of groups [first, last). results(group, groups, token, tokens) are the lines that
// done() of the same will write; done() is called when those sums are complete, while they are in
// the L1. after() is the panel that the thread unpacks next, after all of these; called where the
// kernel prefetches.
template <class Results, class Done, class After>
void multiply_groups(const MatmulKernel& kernel, const WeightView& w, const InputView& x,
                     int64_t first, int64_t last, int token, int tokens, std::byte* scratch,
                     float* sums, const Results& results, const Done& done, const After& after) {
  // Tokens between two batches of prefetches, unless the kernel spreads them.
  const int slice_tokens = kernel.multiply_ahead ? kernel.token_tile : 2 * kernel.token_tile;
  const int slices = (tokens + slice_tokens - 1) / slice_tokens;
  for (int64_t g = 0; g < last - first && !kernel.starts_sums; ++g) {
    std::fill_n(sums + g * kTokenBlock * kGroup, tokens * kGroup, 0.0f);
  }
  for (int64_t column = 0; column < w.columns; column += kernel.chunk) {
    const bool completes = column + kernel.chunk >= w.columns;
    // Lines of y come from the L3: their loads are issued a chunk before the sums are complete.
    const bool fetches = kernel.multiply_ahead && w.columns > kernel.chunk
                             ? !completes && column + 2 * kernel.chunk >= w.columns
                             : completes;
    for (int64_t g = first; g < last; g += kernel.panel_groups) {
      const int count = static_cast<int>(std::min<int64_t>(kernel.panel_groups, last - g));
      const std::byte* const packed = w.data + g * w.stride + column * kernel.packed_column_bytes;
      const std::byte* panel = kernel.unpack ? scratch : packed;
      const int64_t panel_stride = kernel.unpack ? kPanelBytes : w.stride;
      for (int i = 0; i < count && kernel.unpack; ++i) {
        kernel.unpack(w, g + i, column, scratch + i * kPanelBytes);
      }
      const bool turn_ends = g + count == last;
      const int64_t next = turn_ends ? first : g + count;
      const int64_t next_column = turn_ends ? column + kernel.chunk : column;
      float* const group_sums = sums + (g - first) * kTokenBlock * kGroup;
      Ahead ahead;
      if (next_column < w.columns) {
        const int64_t next_count = std::min<int64_t>(kernel.panel_groups, last - next);
        ahead.panel = panel_lines(w, next, next_count, next_column, kernel.chunk);
      } else if (kernel.multiply_ahead) {
        ahead.panel = after();
      }
      ahead.panel_lines = (ahead.panel.left() + slices - 1) / slices;
      for (int t = 0; t < tokens; t += slice_tokens) {
        const int count_tokens = std::min(slice_tokens, tokens - t);
        ahead.results = fetches ? results(g, count, token + t, count_tokens) : Lines();
        float* const to = group_sums + t * kGroup;
        if (kernel.multiply_ahead) {
          kernel.multiply_ahead(panel, panel_stride, count, column, w.columns, x, token + t,
                                count_tokens, to, ahead);
        } else {
          ahead.panel.prefetch(ahead.panel_lines);
          ahead.results.prefetch(ahead.results.left());
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
Lines first_panel(const MatmulKernel& kernel, const WeightView& w, int64_t first, int64_t last) {
  const int64_t groups = std::min<int64_t>(kernel.panel_groups, last - first);
  return panel_lines(w, first, groups, 0, kernel.chunk);
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
    const auto results = [&](int64_t group, int groups, int from, int count) {
      return result_lines(job, group, groups, from, count);
    };
    const auto no_results = [](int64_t, int, int, int) { return Lines(); };
    const auto nothing = [](int64_t, int, int, int) {};
    if (!job.up_kernel) {
      multiply_groups(*job.kernel, job.w, job.x, first, last, token, tokens, scratch.panel,
                      scratch.sums[0], results, finish, after);
    } else {
      multiply_groups(*job.kernel, job.w, job.x, first, last, token, tokens, scratch.panel,
                      scratch.sums[0], no_results, nothing,
                      [&] { return first_panel(*job.up_kernel, job.up, first, last); });
      multiply_groups(*job.up_kernel, job.up, job.x, first, last, token, tokens, scratch.panel,
                      scratch.sums[1], results, finish, after);
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

// The work items of panelled GEMMs: some groups for all tokens or, where the kernel wants that, for
// a block of them. Blocks of tokens are divided among queues, and a thread empties its own queue
// before it helps with the others: the thread that has normed a token multiplies it and adds to its
// residual, so those lines do not move between the cores' L2.
struct Queues {
  static constexpr int kMost = 16;
  struct alignas(64) Counter {
    std::atomic<int64_t> next = 0;
  };
  int count = 1;
  Counter of[kMost];
};

// The items of one job in one queue.
struct Items {
  Items(const Job& job, const Queues& queues, int queue, int threads) {
    each = job.kernel->tokens_outer ? token_block(job) : job.tokens;
    const int64_t blocks = (job.tokens + each - 1) / each;
    first_block = blocks * queue / queues.count;
    rows_each = turn_groups(job, blocks, threads);
    of_rows = (job.groups + rows_each - 1) / rows_each;
    count = of_rows * (blocks * (queue + 1) / queues.count - first_block);
  }
  int64_t group(int64_t item) const { return item % of_rows * rows_each; }
  int token(int64_t item) const { return int(first_block + item / of_rows) * each; }

  int each, rows_each;
  int64_t first_block, of_rows, count;
};

// A thread takes the next item when it is free, or when it multiplies the last panel of an item: it
// prefetches the first panel of the next one meanwhile.
void empty_queue(std::span<const Job> jobs, Queues& queues, int queue, int threads,
                 Scratch& scratch) {
  std::atomic<int64_t>& next = queues.of[queue].next;
  const auto take = [&next] { return next.fetch_add(1, std::memory_order_relaxed); };
  int64_t start = 0, turn = take();
  for (const Job& job : jobs) {
    const Items items(job, queues, queue, threads);
    const KernelScope scope(job);
    while (turn < start + items.count) {
      const int64_t first = items.group(turn - start), taken = turn;
      const int token = items.token(turn - start);
      const auto after = [&] {
        if (turn != taken) return Lines();  // a later block of tokens
        turn = take();
        if (turn >= start + items.count) return Lines();
        return first_panel(*job.kernel, job.w, items.group(turn - start), job.groups);
      };
      panel_groups(job, first, std::min(first + items.rows_each, job.groups), token,
                   std::min(token + items.each, job.tokens), scratch, after);
      if (turn == taken) turn = take();
    }
    start += items.count;
  }
}

void panel_share(std::span<const Job> jobs, Queues& queues, int index, int threads) {
  Scratch& scratch = thread_scratch();
  const int own = queues.count * index / threads;
  for (int i = 0; i < queues.count; ++i) {
    empty_queue(jobs, queues, (own + i) % queues.count, threads, scratch);
  }
  // Streamed stores reach the others' view of memory before this thread says that it is done.
  if (std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.streams_y; })) {
    hwy::FlushStream();
  }
}

// As many queues as threads, where every job has as many blocks of tokens.
int queue_count(std::span<const Job> jobs, int threads) {
  int64_t count = std::min(threads, Queues::kMost);
  for (const Job& job : jobs) {
    const int each = token_block(job);
    count = std::min<int64_t>(count, job.kernel->tokens_outer ? (job.tokens + each - 1) / each : 1);
  }
  return static_cast<int>(count);
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
  Queues queues;
  queues.count = queue_count({panelled, panelled_count}, team.size());
  team.run([&](int index) {
    if (streamed_count > 0) stream_share({streamed, streamed_count}, index, team.size());
    if (panelled_count > 0) panel_share({panelled, panelled_count}, queues, index, team.size());
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
