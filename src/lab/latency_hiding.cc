// Bandwidth against the loads that are under way: chains of pointers, 1 to 32 at a time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_curves.h"
#include "lab/levels.h"
#include "lab/line_ring.h"

namespace ridge {
namespace {

LabResult run_latency_hiding(Lab& lab) {
  const std::vector<LabLevel> levels = lab_levels(lab.machine(), lab.team().size());
  if (levels.empty()) throw Error("no memory level of this CPU has a known size");
  const LabLevel& memory = levels.back();
  const auto threads = size_t(lab.team().size());
  const auto part = size_t(memory.part_bytes) / kLineBytes * kLineBytes;
  const MappedBuffer buffer(part * threads);
  if (!buffer) throw Error("no memory for {}", pretty_bytes(double(part * threads)));
  lab.step("linking the lines");
  std::vector<LineRing> rings;
  for (size_t t = 0; t < threads; ++t)
    rings.emplace_back(buffer.as<std::byte>() + t * part, part, t);

  lab.step("latency of one thread");
  const double latency = load_latency(rings.front());

  LabResult result;
  result.x = {"loads in flight for each thread", true, 0, 0};
  result.y = {"GB/s", true, 0, 0};
  LabSeries series{"lines read", {}};
  for (const size_t chains :
       lab.quick() ? std::vector<size_t>{1, 4, 16} : std::vector<size_t>{1, 2, 4, 8, 16, 32}) {
    lab.step(fmt::format("{} loads in flight", chains));
    std::vector<std::vector<void*>> at(threads, std::vector<void*>(chains));
    for (size_t t = 0; t < threads; ++t) {
      for (size_t j = 0; j < chains; ++j) at[t][j] = rings[t].start(j, chains);
    }
    const long steps = long(1e-3 / latency);
    const double bytes = double(chains * threads * kLineBytes) * double(steps);
    // Little: bytes in flight / latency, up to the level's bandwidth. The lower edge allows for 10
    // misses of a core at a time, the line fill buffers of the smallest cores in servers.
    const double law = double(chains * threads * kLineBytes) / latency;
    const double fewest = double(std::min<size_t>(chains, 10) * threads * kLineBytes) / latency;
    const double expected = std::min(law, memory.bandwidth);
    const LabBand band{0.7 * std::min(fewest, memory.bandwidth) / 1e9, expected / 1e9,
                       1.3 * expected / 1e9};
    series.points.push_back(lab.measure(
        double(chains), band,
        [&] { lab.team().run([&](int t) { chase_chains(chains, at[size_t(t)].data(), steps); }); },
        [&](double seconds) { return bytes / seconds / 1e9; }));
  }
  result.series = {series};
  const double one = series.points.front().measured;
  const double best = largest_of(series).measured;
  const LabPoint& enough = first_near_largest(series, 0.8);
  const double needed = latency * memory.bandwidth / kLineBytes / double(threads);
  const Agreement agreement = agreement_of({&result, 1});
  decide(result, agreement.share() >= 0.8 && best > 3 * one, {&series.points.front(), &enough});
  result.sentence = fmt::format(
      "One load at a time reads {}, {:g} at a time {}; the best rate is {}. Latency x bandwidth = "
      "{} x {} asks for {:.0f} lines in flight for each thread.",
      pretty_rate(1e9 * one), enough.x, pretty_rate(1e9 * enough.measured), pretty_rate(1e9 * best),
      pretty_time(latency), pretty_rate(memory.bandwidth), needed);
  result.notes.push_back(
      fmt::format("{} threads, {} of memory, every line once in random order. The latency comes "
                  "from one thread; the prediction has no limit on misses in flight.",
                  threads, pretty_bytes(double(buffer.size()))));
  return result;
}

}  // namespace

const Experiment kLatencyHidingExperiment{
    "latency-hiding",
    LabTopic::hardware,
    "How much must be in flight to use the bandwidth?",
    "Bandwidth is bytes in flight over latency (Little's law) until the memory is saturated.",
    "Little's law (Volkov, 2016: Understanding Latency Hiding on GPUs)",
    "ridge lab stages",
    run_latency_hiding,
    latency_hiding_on_cuda,
    2,
    {590e6, 590e6, 700e6, 4.5e9}};

}  // namespace ridge
