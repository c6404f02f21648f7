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
#include "lab/line_ring.h"

namespace ridge {
namespace {

constexpr size_t kStageLine = 64, kStageWords = kStageLine / 8;
constexpr int kHashed = 4;  // words of a line that are hashed, one after the other

// Uses the lines order[first .. first + count) one by one and prefetches the line `ahead` places
// later. Both addresses wait for the hash of the line before (through `zero`, which the compiler
// cannot know): else the core, which executes hundreds of instructions out of order, would reach
// the prefetches of later lines by itself, and `ahead` would not be what is in flight.
uint64_t use_lines(const uint64_t* words, const uint32_t* order, size_t count, size_t ahead,
                   uint64_t zero) {
  uint64_t hash = 1;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t* from = words + (hash & zero);
    if (ahead > 0) __builtin_prefetch(from + size_t(order[i + ahead]) * kStageWords);
    const uint64_t* line = from + size_t(order[i]) * kStageWords;
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
  if (levels.empty() || !clock) throw Error("the size of memory's caches or the clock is unknown");
  const LabLevel& memory = levels.back();
  const auto threads = size_t(lab.team().size());
  const auto part = size_t(memory.part_bytes) / kStageLine * kStageLine;
  const MappedBuffer buffer(part * threads);
  if (!buffer) throw Error("no memory for {}", pretty_bytes(double(part * threads)));
  lab.step("misses in flight");
  const MissRates misses = miss_rates(lab.team(), buffer.as<std::byte>(), part);
  std::fill_n(buffer.as<uint64_t>(), part * threads / 8, uint64_t{3});
  lab.step("shuffling lines");
  constexpr size_t kFarthest = 64;
  const size_t lines = part / kStageLine;
  std::vector<uint32_t> order = shuffled_lines(lines, 11);
  order.insert(order.end(), order.begin(), order.begin() + kFarthest);  // to prefetch past the end

  const double use = kUseClocks / *clock;
  // A core gets a line no faster than its misses in flight bring one.
  const double transfer = double(threads) / misses.lines;
  const auto calls = size_t(std::clamp(1e-3 / (use + misses.latency), 256.0, double(lines)));
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
    // (D + 1)), and no line comes faster than the core's misses bring it.
    const double piped = (use + misses.latency) / double(ahead + 1);
    const double seconds = std::max({use, transfer, piped});
    const double rate = double(kStageLine * threads) / seconds / 1e9;
    // The latency is that of one thread alone, and grows with what is in flight.
    const LabBand band{0.6 * rate, rate, 1.3 * rate};
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
  const double needed = (use + misses.latency) / limit - 1;
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
      "{} threads, {}; a line takes {:.1f} ns to use and {} to arrive, and a core's misses bring "
      "one "
      "in {:.1f} ns (read before). Bytes in flight at that distance: {}, latency x bandwidth: {}.",
      threads, pretty_bytes(double(buffer.size())), 1e9 * use, pretty_time(misses.latency),
      1e9 * transfer, pretty_bytes((enough + 1) * double(kStageLine * threads)),
      pretty_bytes(misses.latency * memory.bandwidth)));
  return result;
}

}  // namespace

const Experiment kStagesExperiment{
    "stages",
    LabTopic::hardware,
    "How many buffers hide the trip from memory?",
    "Several tiles in flight keep the memory busy; with one, the unit waits for every trip.",
    "multi-stage pipelines (CUTLASS: Efficient GEMM)",
    "ridge tiles",
    run_stages,
    stages_on_cuda,
    3,
    {590e6, 590e6, 400e6, 2.2e9}};

}  // namespace ridge
