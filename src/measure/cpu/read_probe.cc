#include "measure/cpu/read_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "base/affinity.h"
#include "base/mapped_buffer.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "measure/cpu/cache_flush.h"
#include "measure/cpu/kernels.h"
#include "measure/cpu/noise.h"
#include "measure/cpu/timing.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

// The buffer is flushed from all caches before each pass, so that their size, which a VM may not
// tell, does not matter: on an EPYC (Zen 5) with 32 MB of L3, 32, 64, 128 and 256 MB read at 84 to
// 87 GB/s, which is what two threads get that read 42 GB/s each from 1536 MB. At 40 GB/s a thread
// reads its part in at least 100 us, against which starting together takes little.
constexpr double kBytesPerThread = 4e6;
constexpr double kWantedBytes = 128e6;
constexpr double kLeastBytes = 32e6;
constexpr double kReadSeconds = 0.15;
constexpr double kCacheSeconds = 0.02;
constexpr double kChainSeconds = 0.01;
constexpr int kMinPasses = 3;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs work(index) on all threads, pass after pass, each after before_each(index), and returns the
// seconds of each pass. The team's threads are pinned and spin between passes: unpinned, two
// threads may share a processor, and waking a thread takes as long as reading a cache.
template <typename Work>
std::vector<double> timed_passes(ThreadTeam& team, double seconds, Work work,
                                 const std::function<void(int)>& before_each = {}) {
  std::vector<double> passes;
  const Clock::time_point begin = Clock::now();
  while (static_cast<int>(passes.size()) < kMinPasses || since(begin) < seconds) {
    if (before_each) team.run(before_each);
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

// What is read again and again stays in a cache that has room for it, unless it is flushed.
enum class Caches : uint8_t { kept, flushed };

// Nothing where the memory cannot be had.
std::optional<Measured> probe_read(ThreadTeam& team, double bytes, double seconds, long repeats,
                                   Caches caches) {
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
  const auto flush = [&](int index) { flush_from_caches(part(index), share); };
  team.run(touch);
  const std::vector<double> passes = caches == Caches::flushed
                                         ? timed_passes(team, seconds, read, flush)
                                         : timed_passes(team, seconds, read);
  const double total = static_cast<double>(share) * threads;
  return summarize(total * double(repeats), passes,
                   fmt::format("{} threads reading {}, best of {} passes", threads,
                               pretty_bytes(total), passes.size()));
}

void probe_memory(ThreadTeam& team, CpuProbe& probe) {
  const double wanted = probe_bytes();
  const double bytes = std::min(wanted, free_bytes() * kShareOfFree);
  if (!can_flush_caches()) {
    probe.no_read_bandwidth = "No instruction of this CPU flushes its caches, to measure DRAM.";
    return;
  }
  if (bytes >= kLeastBytes) {
    probe.read_bandwidth = probe_read(team, bytes, kReadSeconds, 1, Caches::flushed);
  }
  if (!probe.read_bandwidth) {
    probe.no_read_bandwidth = fmt::format(
        "Measuring the bandwidth of DRAM takes {} of free memory, which could not be had.",
        pretty_bytes(bytes >= kLeastBytes ? bytes : kLeastBytes / kShareOfFree));
  }
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
  return probe_read(team, own_cache() / 4, kCacheSeconds, kRepeats, Caches::kept);
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
  const std::vector<double> passes = timed_passes(team, kChainSeconds, chain);
  return summarize(kChain, passes, "chain of dependent additions on all cores");
}

}  // namespace

double probe_bytes() {
  return std::max(kWantedBytes, kBytesPerThread * double(usable_processors().size()));
}

std::optional<CpuProbe> probe_cpu() {
  try {
    ThreadTeam team = ThreadTeam::pinned_to(usable_processors());
    const Disturbance before = disturbance_now();
    CpuProbe probe;
    probe_memory(team, probe);
    probe.cache_bandwidth = probe_cache(team);
    probe.clock = probe_clock(team);
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
