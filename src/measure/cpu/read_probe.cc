#include "measure/cpu/read_probe.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/units.h"
#include "measure/cpu/kernels.h"
#include "measure/cpu/place.h"

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
constexpr double kShareOfFree = 0.25;
constexpr double kReadSeconds = 0.15;
constexpr double kCacheSeconds = 0.02;
constexpr double kChainSeconds = 0.01;
constexpr int kMinPasses = 3;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Puts the calling thread on one processor; the scheduler may otherwise leave two threads that wake
// each other on one and halve what both read (35 instead of 65 GB/s on two cores).
class Pinned {
 public:
  explicit Pinned(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(processor), &one);
    held_ = sched_getaffinity(0, sizeof before_, &before_) == 0 &&
            sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~Pinned() {
    if (held_) sched_setaffinity(0, sizeof before_, &before_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
  bool held_ = false;
};

// Runs work(thread index) on every thread at once, each call between two barriers, and returns
// the seconds of each pass as the caller saw it.
template <typename Prepare, typename Work>
std::vector<double> timed_passes(int threads, double seconds, Prepare prepare, Work work) {
  const std::vector<int> processors = usable_processors();
  std::vector<double> passes;
  std::atomic<bool> done = false;
  std::barrier gate(threads);
  const auto body = [&](int index) {
    const Pinned pinned(processors[static_cast<size_t>(index) % processors.size()]);
    prepare(index);
    gate.arrive_and_wait();
    const Clock::time_point begin = Clock::now();
    while (true) {
      const Clock::time_point start = Clock::now();
      work(index);
      gate.arrive_and_wait();
      if (index == 0) {
        passes.push_back(since(start));
        done = static_cast<int>(passes.size()) >= kMinPasses && since(begin) > seconds;
      }
      gate.arrive_and_wait();
      if (done) return;
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(body, i);
  body(0);
  for (std::thread& thread : pool) thread.join();
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

std::optional<Measured> probe_read(int threads, double bytes, double seconds) {
  constexpr size_t kStepBytes = kStep * sizeof(float);
  const size_t share =
      static_cast<size_t>(bytes) / static_cast<size_t>(threads) / kStepBytes * kStepBytes;
  const size_t words = share / sizeof(float);
  const Buffer buffer(share * static_cast<size_t>(threads));
  if (!buffer || words == 0) return std::nullopt;
  const KernelSet& kernels = kernel_sets().front();
  std::atomic<uint64_t> sink = 0;
  const auto part = [&](int index) {
    return buffer.as<float>() + static_cast<size_t>(index) * words;
  };
  // The thread that reads a part touches it first, so that its pages are near.
  const auto touch = [&](int index) { std::fill_n(part(index), words, float(index)); };
  const auto read = [&](int index) { sink += kernels.read(part(index), words, 1); };
  const std::vector<double> passes = timed_passes(threads, seconds, touch, read);
  const double total = static_cast<double>(share) * threads;
  return summarize(total, passes,
                   fmt::format("{} threads reading {}, best of {} passes", threads,
                               pretty_bytes(total), passes.size()));
}

// -1 or 0 where the C library does not know.
double last_cache() { return static_cast<double>(sysconf(_SC_LEVEL3_CACHE_SIZE)); }

std::optional<Measured> probe_memory(int threads) {
  const double wanted =
      std::max({kWantedBytes, kBytesPerThread * threads, kTimesCache * last_cache()});
  const double bytes = std::min(wanted, free_bytes() * kShareOfFree);
  if (bytes < kLeastBytes) return std::nullopt;
  return probe_read(threads, bytes, kReadSeconds);
}

// What a small model streams from. Half of it: the rest is other people's.
std::optional<Measured> probe_cache(int threads) {
  if (last_cache() <= 0) return std::nullopt;
  return probe_read(threads, last_cache() / 2, kCacheSeconds);
}

// One addition a clock on every core there is: a chain that nothing can shorten. All threads at
// once, because the clock of one busy core is not that of all.
std::optional<Measured> probe_clock(int threads) {
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
      threads, kChainSeconds, [](int) {}, chain);
  return summarize(kChain, passes, "chain of dependent additions on all cores");
}

}  // namespace

std::optional<CpuProbe> probe_cpu() {
  const int threads = std::max(1, static_cast<int>(usable_processors().size()));
  try {
    return CpuProbe{probe_memory(threads), probe_cache(threads), probe_clock(threads)};
  } catch (const std::system_error&) {  // no more threads allowed here
    return std::nullopt;
  }
}

}  // namespace ridge
