// Sequential, strided and scattered reads of memory: which share of the roof arrives as useful
// bytes.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/levels.h"
#include "lab/line_order.h"
#include "lab/line_ring.h"
#include "measure/cpu/kernels.h"

namespace ridge {
namespace {

constexpr size_t kPatternLine = 64, kWordsPerLine = kPatternLine / 4;
// A stride that is no point: what prefetching makes of lines that are not neighbours is read at it.
constexpr size_t kProbedStride = 192;
constexpr size_t kGuessed = 2048;  // the prefetchers of Intel's and AMD's cores follow such strides
// How a pattern's lines arrive. A stream of neighbours runs at the bandwidth. Of strides of a few
// lines the prefetchers bring some, as many as of the probed stride to within a factor of 1.67:
// they may bring the lines in between as well, or stop at the end of a page. Other lines wait for
// the core's own misses, as many as it keeps in flight.
enum class LineArrival : uint8_t { streamed, near_stride, missed };

// One word of every `stride` bytes: all strides touch the same number of lines, going through the
// part again from the next line on until every line was touched once.
uint32_t sum_strided(const uint32_t* words, size_t lines, size_t stride) {
  const size_t step = stride / kPatternLine;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  for (size_t start = 0; start < step; ++start) {
    const uint32_t* at = words + start * kWordsPerLine;
    const size_t jump = step * kWordsPerLine, count = (lines - start + step - 1) / step;
    const uint32_t* const end = at + count / 4 * 4 * jump;
    for (; at != end; at += 4 * jump) {
      a += at[0];
      b += at[jump];
      c += at[2 * jump];
      d += at[3 * jump];
    }
    for (size_t i = count / 4 * 4; i < count; ++i, at += jump) a += at[0];
  }
  return a + b + c + d;
}

// Whole lines in the given order, as vectors: with few instructions a line, the core's window holds
// more lines than it can have misses in flight.
uint32_t sum_scattered(const uint32_t* words, const uint32_t* order, size_t lines) {
  using Line = uint32_t __attribute__((vector_size(kPatternLine), aligned(kPatternLine)));
  Line sum = {};
  for (size_t i = 0; i < lines; ++i) {
    sum += *reinterpret_cast<const Line*>(words + size_t(order[i]) * kWordsPerLine);
  }
  uint32_t total = 0;
  for (size_t j = 0; j < kWordsPerLine; ++j) total += sum[j];
  return total;
}

struct Pattern {
  std::string label;
  double useful;  // bytes of a line that are used
  LineArrival arrival;
  size_t stride;
  std::function<uint32_t(const uint32_t* words, int thread)> read;
};

LabResult run_access_patterns(Lab& lab) {
  const std::vector<LabLevel> levels = lab_levels(lab.machine(), lab.team().size());
  if (levels.empty()) throw Error("no memory level of this CPU has a known size");
  const LabLevel& memory = levels.back();
  const auto threads = size_t(lab.team().size());
  // Whole pages of 4 KiB; every call reads the whole part, so that nothing is met in a cache.
  const size_t part = size_t(memory.part_bytes / (lab.quick() ? 4 : 1)) / 16384 * 16384;
  const size_t lines = part / kPatternLine;
  const MappedBuffer buffer(part * threads);
  if (!buffer) throw Error("no memory for {}", pretty_bytes(double(part * threads)));
  lab.step("misses in flight");
  const MissRates misses = miss_rates(lab.team(), buffer.as<std::byte>(), part);
  const double missed = double(kPatternLine) * misses.lines;
  std::fill_n(buffer.as<uint32_t>(), part * threads / 4, 1u);
  lab.step("shuffling lines");
  const std::vector<uint32_t> order = shuffled_lines(lines, 7);
  std::vector<Pattern> patterns;
  patterns.push_back(
      {"sequential", kPatternLine, LineArrival::streamed, 64, [&](const uint32_t* words, int) {
         return kernel_sets().front().read(reinterpret_cast<const float*>(words), part / 4, 1);
       }});
  for (const size_t stride : lab.quick() ? std::vector<size_t>{64, 4096}
                                         : std::vector<size_t>{64, 128, 256, 1024, 4096}) {
    patterns.push_back({fmt::format("every {} B", stride), 4,
                        stride == kPatternLine ? LineArrival::streamed
                        : stride <= kGuessed   ? LineArrival::near_stride
                                               : LineArrival::missed,
                        stride, [&, stride](const uint32_t* words, int) {
                          return sum_strided(words, lines, stride);
                        }});
  }
  patterns.push_back(
      {"scattered lines", kPatternLine, LineArrival::missed, 0,
       [&](const uint32_t* words, int) { return sum_scattered(words, order.data(), lines); }});

  LabResult result;
  result.x = {"pattern", false, 0, 0};
  result.y = {"useful GB/s", true, 0, 0};
  result.categories = true;
  LabSeries series{"useful bytes", {}};
  std::atomic<bool> right = true;
  lab.step(fmt::format("a stride of {} B", kProbedStride));
  const double near = double(part * threads) /
                      lab.time([&] {
                           lab.team().run([&](int t) {
                             const uint32_t* words = buffer.as<uint32_t>() + size_t(t) * part / 4;
                             if (sum_strided(words, lines, kProbedStride) != lines) right = false;
                           });
                         })
                          .seconds;
  const auto around = [](double rate, double down, double up) {
    return LabBand{down * rate / 1e9, rate / 1e9, up * rate / 1e9};
  };
  for (const Pattern& pattern : patterns) {
    lab.step(pattern.label);
    const double share = pattern.useful / kPatternLine;
    LabBand band = rate_under(share * memory.bandwidth / 1e9);
    if (pattern.arrival == LineArrival::missed) band = around(share * missed, 0.6, 1.5);
    if (pattern.arrival == LineArrival::near_stride) {
      const bool nearer = pattern.stride < kProbedStride;
      const double expected = share * (nearer ? near : std::sqrt(near * missed));
      const double none = 0.8 * share * std::min(near, missed);
      band = {none / 1e9, expected / 1e9, 1.67 * std::max(expected, share * near) / 1e9};
    }
    const double useful = double(lines) * pattern.useful * double(threads);
    const auto wanted = uint32_t(double(lines) * pattern.useful / 4);
    LabPoint point = lab.measure(
        double(series.points.size() + 1), band,
        [&] {
          lab.team().run([&](int t) {
            const uint32_t* words = buffer.as<uint32_t>() + size_t(t) * part / 4;
            if (pattern.read(words, t) != wanted) right = false;
          });
        },
        [&](double seconds) { return useful / seconds / 1e9; });
    point.label = pattern.label;
    series.points.push_back(point);
  }
  result.series = {series};
  result.checks.push_back({"every pattern reads what it should (checksums)", right});
  const auto of_roof = [&](const LabPoint& p) { return 1e9 * p.measured / memory.bandwidth; };
  const LabPoint &first = series.points.front(), &thin = series.points[1];
  const LabPoint &far = series.points[series.points.size() - 2], &random = series.points.back();
  decide(result,
         thin.measured < first.measured / 8 && far.measured <= 1.1 * thin.measured &&
             random.measured < 1.05 * first.measured,
         {&first, &thin, &far, &random});
  result.sentence = fmt::format(
      "Of {}, sequential reads get {}, one float of each line {:.1f} %, one of each 4 KiB {:.1f} "
      "%, "
      "whole lines in random order {}.",
      pretty_rate(memory.bandwidth), pretty_percent(of_roof(first)), 100 * of_roof(thin),
      100 * of_roof(far), pretty_percent(of_roof(random)));
  result.notes.push_back(fmt::format(
      "{} threads, {}; a line is 64 B, so 4 useful bytes cap the rate at 1/16. Read before the "
      "points: {} of lines that a stride of {} B touches, and {} of lines that nothing prefetches "
      "({:.0f} misses of a core in flight at {}). {} of the buffer lies in huge pages; with 4 KiB "
      "pages, strides of a page add a TLB miss to each load.",
      threads, pretty_bytes(double(buffer.size())), pretty_rate(near), kProbedStride,
      pretty_rate(missed), missed * misses.latency / double(kPatternLine * threads),
      pretty_time(misses.latency), pretty_percent(buffer.huge_share())));
  return result;
}

}  // namespace

const Experiment kAccessPatternsExperiment{
    "access-patterns",
    LabTopic::hardware,
    "Why do kernels stay below the roof?",
    "Memory moves whole lines: bytes that are not used, and lines that are not prefetched, are "
    "bandwidth lost.",
    "coalescing",
    "ridge lab latency-hiding",
    run_access_patterns,
    access_patterns_on_cuda,
    3,
    {590e6, 590e6, 700e6, 4.5e9}};

}  // namespace ridge
