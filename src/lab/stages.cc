// Lines fetched ahead of their use, 0 to 64 of them: a pipeline of stages on a CPU.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_curves.h"
#include "lab/levels.h"
#include "lab/line_order.h"

namespace ridge {
namespace {

constexpr size_t kStageLine = 64, kStageWords = kStageLine / 8;
constexpr int kHashed = 4;  // words of a line that are hashed, one after the other

// Uses the lines order[first .. first + count) one by one. The next line's address waits for the
// hash of this one (through `zero`, which the compiler cannot know), so that the core does not run
// ahead by itself; the line `ahead` places later is prefetched.
uint64_t use_lines(const uint64_t* words, const uint32_t* order, size_t count, size_t ahead,
                   uint64_t zero) {
  uint64_t hash = 1;
  for (size_t i = 0; i < count; ++i) {
    if (ahead > 0) __builtin_prefetch(words + size_t(order[i + ahead]) * kStageWords);
    const uint64_t* line = words + size_t(order[i]) * kStageWords + (hash & zero);
    for (int j = 0; j < kHashed; ++j) hash = (hash ^ line[j]) * 0x9e3779b97f4a7c15u;
  }
  return hash;
}

// Clocks that one line takes when it is in the L1: a load (5) and, for each word, an exclusive or
// (1) and a product (3), all dependent.
constexpr double kUseClocks = 5 + 4 * kHashed;

LabResult run_stages(Lab& lab) {
  const std::vector<LabLevel> levels = lab_levels(lab.machine(), lab.team().size());
  const Maybe clock = lab.machine().clock;
  if (levels.empty() || levels.back().latency <= 0 || !clock) {
    throw Error("the latency of memory or the clock is unknown");
  }
  const LabLevel& memory = levels.back();
  const auto threads = size_t(lab.team().size());
  const auto part = size_t(memory.part_bytes) / kStageLine * kStageLine;
  const MappedBuffer buffer(part * threads);
  if (!buffer) throw Error("no memory for {}", pretty_bytes(double(part * threads)));
  std::fill_n(buffer.as<uint64_t>(), part * threads / 8, uint64_t{3});
  lab.step("shuffling lines");
  constexpr size_t kFarthest = 64;
  const size_t lines = part / kStageLine;
  std::vector<uint32_t> order = shuffled_lines(lines, 11);
  order.insert(order.end(), order.begin(), order.begin() + kFarthest);  // to prefetch past the end

  const double use = kUseClocks / *clock;
  const double transfer = kStageLine * double(threads) / memory.bandwidth;  // of one thread's line
  const auto calls = size_t(std::clamp(1e-3 / (use + memory.latency), 256.0, double(lines)));
  const volatile uint64_t unknown_zero = 0;
  const uint64_t zero = unknown_zero;
  std::vector<size_t> at(threads * 16, 0);
  std::atomic<uint64_t> sink = 0;
  LabResult result;
  result.x = {"lines fetched ahead", false, 0, 0};
  result.y = {"GB/s", true, 0, 0};
  LabSeries series{"lines used", {}};
  for (const size_t ahead : lab.quick() ? std::vector<size_t>{0, 4, 32}
                                        : std::vector<size_t>{0, 1, 2, 4, 8, 16, 32, 64}) {
    lab.step(fmt::format("{} lines ahead", ahead));
    // A line that is fetched D uses early waits latency - D t, so t = max(use, (use + latency) /
    // (D + 1)), and no line comes faster than the memory delivers.
    const double piped = (use + memory.latency) / double(ahead + 1);
    const double seconds = std::max({use, transfer, piped});
    const double rate = double(kStageLine * threads) / seconds / 1e9;
    // Lower edge: 10 misses of a core in flight, the line fill buffers of the smallest server
    // cores. Upper edge: the latency was taken on an idle neighbour and varies by a third.
    const double slowest = std::max(seconds, (use + memory.latency) / 10);
    const LabBand band{0.6 * rate * (ahead >= 9 ? seconds / slowest : 1), rate, 1.3 * rate};
    const double bytes = double(calls * kStageLine * threads);
    series.points.push_back(lab.measure(
        double(ahead), band,
        [&] {
          lab.team().run([&](int t) {
            size_t& place = at[size_t(t) * 16];
            if (place + calls > lines) place = 0;
            sink += use_lines(buffer.as<uint64_t>() + size_t(t) * part / 8, order.data() + place,
                              calls, ahead, zero);
            place += calls;
          });
        },
        [&](double took) { return bytes / took / 1e9; }));
  }
  result.series = {series};
  const double none = series.points.front().measured;
  const LabPoint& near = first_near_largest(series, 0.8);
  const double best = largest_of(series).measured, enough = near.x;
  const double limit = std::max(use, transfer);
  const double needed = (use + memory.latency) / limit - 1;
  const auto hash_of = [&](size_t ahead) {
    return use_lines(buffer.as<uint64_t>(), order.data(), calls, ahead, zero);
  };
  result.checks.push_back({"fetching ahead changes no result", hash_of(0) == hash_of(kFarthest)});
  decide(result, best > 2 * none && enough <= 4 * needed,
         {&series.points.front(), &near, &largest_of(series)});
  result.sentence = fmt::format(
      "Without fetching ahead the loop uses {}; {:g} lines ahead give 80 % of its best, {} "
      "({:.1f}x). Latency over the time of a line asks for {:.0f}.",
      pretty_rate(1e9 * none), enough, pretty_rate(1e9 * best), best / none, needed);
  result.notes.push_back(fmt::format(
      "{} threads, {}; a line takes {:.1f} ns to use and {} to arrive. Bytes in flight at that "
      "distance: {}, latency x bandwidth: {}.",
      threads, pretty_bytes(double(buffer.size())), 1e9 * use, pretty_time(memory.latency),
      pretty_bytes((enough + 1) * double(kStageLine * threads)),
      pretty_bytes(memory.latency * memory.bandwidth)));
  return result;
}

}  // namespace

const Experiment kStagesExperiment{
    "stages",
    LabTopic::hardware,
    "How many buffers hide the trip from memory?",
    "Several tiles in flight keep the memory busy; with one, the unit waits for every trip.",
    "claim 15",
    "ridge tiles",
    run_stages,
    stages_on_cuda,
    3,
    {590e6, 590e6, 400e6, 2.2e9}};

}  // namespace ridge
