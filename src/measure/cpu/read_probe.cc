#include "measure/cpu/read_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/affinity.h"
#include "base/mapped_buffer.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "measure/cpu/kernels.h"
#include "measure/cpu/noise.h"
#include "measure/cpu/timing.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

// Server cores share about 4 MB of last-level cache each: eight times that leaves little in it.
constexpr double kBytesPerThread = 32e6;
// With few threads: they may share a cache far larger than a VM admits (128 MB read at 96 GB/s and
// 512 MB at 36 in a VM that reports 32 MB of L3).
constexpr double kWantedBytes = 512e6;
constexpr double kTimesCache = 4;     // a VM of few cores may see the cache of a whole socket
constexpr double kLeastBytes = 32e6;  // below this a cache could hold it all
constexpr double kReadSeconds = 0.15;
constexpr double kCacheSeconds = 0.02;
constexpr double kChainSeconds = 0.01;
constexpr int kMinPasses = 3;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs work(index) on all threads, pass after pass, and returns the seconds of each pass. The
// team's threads are pinned and spin between passes: unpinned, two threads may share a processor,
// and waking a thread takes as long as reading a cache.
template <typename Prepare, typename Work>
std::vector<double> timed_passes(ThreadTeam& team, double seconds, Prepare prepare, Work work) {
  std::vector<double> passes;
  team.run(prepare);
  const Clock::time_point begin = Clock::now();
  while (static_cast<int>(passes.size()) < kMinPasses || since(begin) < seconds) {
    passes.push_back(timed_pass(team, work).seconds);
  }
  return passes;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Measured summarize(double amount, const std::vector<double>& passes, std::string how) {
  const double best = *std::min_element(passes.begin(), passes.end());
  return {amount / best, 1 - best / median(passes), std::move(how)};
}

std::optional<Measured> probe_read(ThreadTeam& team, double bytes, double seconds, long repeats) {
  const int threads = team.size();
  constexpr size_t kStepBytes = kStep * sizeof(float);
  const size_t share =
      static_cast<size_t>(bytes) / static_cast<size_t>(threads) / kStepBytes * kStepBytes;
  const size_t words = share / sizeof(float);
  const MappedBuffer buffer(share * static_cast<size_t>(threads));
  if (!buffer || words == 0) return std::nullopt;
  const KernelSet& kernels = kernel_sets().front();
  std::atomic<uint64_t> sink = 0;
  const auto part = [&](int index) {
    return buffer.as<float>() + static_cast<size_t>(index) * words;
  };
  // The thread that reads a part touches it first, so that its pages are near.
  const auto touch = [&](int index) { std::fill_n(part(index), words, float(index)); };
  const auto read = [&](int index) { sink += kernels.read(part(index), words, repeats); };
  const std::vector<double> passes = timed_passes(team, seconds, touch, read);
  const double total = static_cast<double>(share) * threads;
  return summarize(total * double(repeats), passes,
                   fmt::format("{} threads reading {}, best of {} passes", threads,
                               pretty_bytes(total), passes.size()));
}

// -1 or 0 where the C library does not know.
double last_cache() { return static_cast<double>(sysconf(_SC_LEVEL3_CACHE_SIZE)); }

std::optional<Measured> probe_memory(ThreadTeam& team) {
  const double wanted =
      std::max({kWantedBytes, kBytesPerThread * team.size(), kTimesCache * last_cache()});
  const double bytes = std::min(wanted, free_bytes() * kShareOfFree);
  if (bytes < kLeastBytes) return std::nullopt;
  return probe_read(team, bytes, kReadSeconds, 1);
}

// The last cache that one core reaches, bytes; 0 where the kernel does not say. (sysconf adds up
// all of a socket's, 320 MB where a core has 32.)
double own_cache() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  double kilobytes = 0;
  char unit = 0;
  return file >> kilobytes >> unit && unit == 'K' ? kilobytes * 1024 : 0;
}

// The cache that a small model is streamed from. A quarter of it, because other cores and other
// guests use the rest.
std::optional<Measured> probe_cache(ThreadTeam& team) {
  if (own_cache() <= 0) return std::nullopt;
  constexpr long kRepeats = 16;  // a pass in milliseconds, far above what waking the threads takes
  return probe_read(team, own_cache() / 4, kCacheSeconds, kRepeats);
}

// A chain of dependent additions takes one clock per addition on every CPU. All threads run
// together, because one busy core may clock higher than all of them.
std::optional<Measured> probe_clock(ThreadTeam& team) {
  constexpr int kChain = 4'000'000;
  std::atomic<uint64_t> sink = 0;
  const auto chain = [&](int index) {
    uint64_t value = static_cast<uint64_t>(index);
    uint64_t step = 3;
    const auto add = [&] {
      value += step;
      asm volatile("" : "+r"(value), "+r"(step));  // keeps each addition, adds no instruction
    };
    // Written out: a loop of one addition would count branches, which take two clocks on some.
    for (int i = 0; i < kChain; i += 8) {
      add(), add(), add(), add(), add(), add(), add(), add();
    }
    sink += value;
  };
  const std::vector<double> passes = timed_passes(
      team, kChainSeconds, [](int) {}, chain);
  return summarize(kChain, passes, "chain of dependent additions on all cores");
}

}  // namespace

std::optional<CpuProbe> probe_cpu() {
  try {
    ThreadTeam team = ThreadTeam::pinned_to(usable_processors());
    const Disturbance before = disturbance_now();
    CpuProbe probe{probe_memory(team), probe_cache(team), probe_clock(team)};
    const std::string doubt = doubt_between(before, disturbance_now());
    for (std::optional<Measured>* found :
         {&probe.read_bandwidth, &probe.cache_bandwidth, &probe.clock}) {
      if (*found && !doubt.empty()) (*found)->how += ", in doubt because " + doubt;
    }
    return probe;
  } catch (const std::system_error&) {  // no more threads allowed here
    return std::nullopt;
  }
}

}  // namespace ridge
