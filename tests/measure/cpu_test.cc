// The CPU's microbenchmarks: kernels do what they say, broken ones are caught, figures are sane.
// Nothing here depends on how fast the machine is beyond what no machine can do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/affinity.h"
#include "base/error.h"
#include "measure/band.h"
#include "measure/cpu/bandwidth.h"
#include "measure/cpu/disk.h"
#include "measure/cpu/kernels.h"
#include "measure/cpu/latency.h"
#include "measure/cpu/noise.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Sampling kShort = {3, 0.002, 0.05};

class EveryIsa : public testing::TestWithParam<size_t> {
 protected:
  const KernelSet& set() const { return kernel_sets()[GetParam()]; }
  MappedBuffer buffer_{3 * kStep * 64 * sizeof(float)};
  const size_t n_ = kStep * 64;
  float* a() { return buffer_.as<float>(); }
  float* b() { return a() + n_; }
  float* c() { return a() + 2 * n_; }
};

TEST_P(EveryIsa, ReadSumsEveryWord) {
  uint32_t expected = 0;
  for (size_t i = 0; i < n_; ++i) {
    a()[i] = static_cast<float>(i % 1000);
    expected += std::bit_cast<uint32_t>(a()[i]);
  }
  EXPECT_EQ(set().read(a(), n_, 1), expected);
  EXPECT_EQ(set().read(a(), n_, 3), 3 * expected);
}

TEST_P(EveryIsa, WritersWriteEveryElement) {
  const auto check = [&](float expected) {
    for (size_t i = 0; i < n_; ++i) ASSERT_EQ(a()[i], expected) << i;
  };
  set().write(a(), n_, 1, 3.0f);
  check(3);
  set().write_stream(a(), n_, 1, 4.0f);
  check(4);
  set().update(a(), n_, 2, 0.5f);
  check(1);
  std::fill_n(b(), n_, 5.0f);
  std::fill_n(c(), n_, 6.0f);
  set().copy(a(), b(), n_, 1);
  check(5);
  set().copy_stream(a(), c(), n_, 1);
  check(6);
  set().triad(a(), b(), c(), n_, 1, 2.0f);
  check(17);
  set().triad_stream(a(), b(), c(), n_, 1, 3.0f);
  check(23);
}

TEST_P(EveryIsa, ChainsReachTheirFixedPoint) {
  EXPECT_NEAR(set().fma32(100), kFmaFixedPoint, 1e-6);
  EXPECT_NEAR(set().fma64(100), kFmaFixedPoint, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Isa, EveryIsa, testing::Range(size_t{0}, kernel_sets().size()));

TEST(DotKernels, CountWhatTheyDid) {
  std::vector<std::string> missing;
  for (const DotKernel& kernel : dot_kernels(missing)) {
    const double few = kernel.run(10), many = kernel.run(20);
    EXPECT_GT(many, few) << kernel.isa;
  }
}

TEST(Ring, MeetsEveryLineOnce) {
  const MappedBuffer buffer(1 << 20);
  for (const double bytes : {128.0, 4096.0, 100'000.0, 1048576.0}) {
    EXPECT_TRUE(Ring(buffer, bytes, 3).is_whole()) << bytes;
  }
}

ThreadTeam one_thread() { return ThreadTeam::pinned_to({usable_processors()[0]}); }

TEST(TimedPass, LastsFromTheFirstStartToTheLastEnd) {
  ThreadTeam team(3);
  using std::chrono::milliseconds;
  for (const int slowest : {0, 1, 2}) {
    const Pass pass = timed_pass(team, [&](int index) {
      std::this_thread::sleep_for(milliseconds(index == slowest ? 8 : 1));
    });
    EXPECT_GE(pass.seconds, 8e-3);
  }
}

TEST(Sample, IsTheTimeOfOneRepeat) {
  ThreadTeam team = one_thread();
  constexpr double kRepeat = 20e-6;
  double longest = 0;
  const Samples samples = sample(team, kShort, [&](int, long repeats) {
    const auto start = Clock::now();
    const auto end = start + std::chrono::duration<double>(kRepeat * double(repeats));
    while (Clock::now() < end) {
    }
    longest = std::max(longest, std::chrono::duration<double>(Clock::now() - start).count());
  });
  EXPECT_GE(longest, kShort.seconds / 2);  // repeats grew until a pass was long enough
  ASSERT_FALSE(samples.seconds.empty());
  EXPECT_GE(*std::min_element(samples.seconds.begin(), samples.seconds.end()), kRepeat);
}

Machine this_machine(double clock) {
  Machine machine;
  machine.kind = MachineKind::cpu;
  machine.units = 1;
  machine.clock = clock;
  machine.peak[static_cast<int>(DType::fp32)] = 64 * clock;
  return machine;
}

TEST(Plausibility, RealReadsPassAndBrokenOnesDoNot) {
  ThreadTeam team = one_thread();
  const Machine machine = this_machine(chain_clock(team));
  const WorkingSet set(team, 1 << 20);
  const KernelSet& real = kernel_sets().front();
  const auto judged = [&](const KernelSet& kernels) {
    const Rates rates = measure_bandwidth(team, set, 16384, Access::read, kernels, kShort);
    Reading reading = summarize("L1.read.core", "", Dimension::bandwidth, rates.bytes_per_s, "");
    reading.doubt = rates.doubt;
    return std::pair(judge(reading, machine).verdict, reading.doubt);
  };
  EXPECT_NE(judged(real).first, ReadingVerdict::implausible);
  EXPECT_EQ(judged(real).second.find("checksum"), std::string::npos);
  // What a compiler does to a loop whose result nobody uses.
  KernelSet dropped = real;
  dropped.read = [](const float*, size_t, long) { return uint32_t{0}; };
  EXPECT_EQ(judged(dropped).first, ReadingVerdict::implausible);
  EXPECT_NE(judged(dropped).second.find("checksum"), std::string::npos);
  // One pass instead of all: the right sum for one, far too fast for many.
  KernelSet hoisted = real;
  hoisted.read = [](const float* a, size_t n, long repeats) {
    return kernel_sets().front().read(a, n, 1) * static_cast<uint32_t>(repeats);
  };
  EXPECT_EQ(judged(hoisted).first, ReadingVerdict::implausible);
}

TEST(Plausibility, MergedChainsAreCaught) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "instrumented loops run far below the peak the band is about";
#endif
  ThreadTeam team = one_thread();
  const Machine machine = this_machine(chain_clock(team));
  const KernelSet& set = kernel_sets().front();
  // Twelve equal chains are one chain to a compiler: the count of operations is twelve times true.
  const Samples samples = sample(team, kShort, [&](int, long repeats) { set.fma32(repeats / 12); });
  const double rate = set.fma32_ops() / median(samples.seconds);
  const Reading reading = summarize("peak.fp32.test", "peak.fp32", Dimension::rate, {rate}, "");
  EXPECT_EQ(judge(reading, machine).verdict, ReadingVerdict::implausible);
}

TEST(Latency, GrowsWithTheWorkingSetAndIsSane) {
  ThreadTeam one = one_thread();
  const MappedBuffer buffer(64 << 20);
  const double small = measure_latency(one, buffer, 8192, kShort).value;
  const double large = measure_latency(one, buffer, 64 << 20, kShort).value;
  EXPECT_GT(small, 0.2e-9);
  EXPECT_LT(small, 50e-9);
  EXPECT_GT(large, small);
  EXPECT_LT(large, 20e-6);
}

TEST(Noise, CountersAreReadAndDescribed) {
  const Disturbance now = disturbance_now();
  EXPECT_GE(now.total, now.steal);
  Disturbance before, after;
  before.total = 1000, before.load = 9;
  after.total = 2000, after.steal = 100, after.throttled = 3;
  EXPECT_EQ(disturbances_between(before, after, 2).size(), 3u);
  EXPECT_TRUE(disturbances_between({}, {}, 2).empty());
}

// Whether the file system of a folder allows reads past the page cache (tmpfs before Linux 6.6 does
// not).
bool allows_direct_reads(const std::string& folder) {
  const std::string path = folder + "/ridge-direct-read-test.tmp";
  const int file = open(path.c_str(), O_CREAT | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
  unlink(path.c_str());
  return file >= 0;
}

std::vector<std::string> scratch_files(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("ridge-measure-")) found.push_back(name);
  }
  return found;
}

TEST(Disk, ReadsBackAndLeavesNothing) {
  const std::string folder = testing::TempDir() + "/ridge_disk_test_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  if (allows_direct_reads(folder)) {
    EXPECT_GT(measure_disk(folder, 16 << 20, 1).value, 0);
  } else {
    EXPECT_THROW(measure_disk(folder, 16 << 20, 1), Error);
  }
  EXPECT_EQ(scratch_files(folder), std::vector<std::string>{});
  std::filesystem::remove_all(folder);
}

TEST(Disk, SaysWhyItCannotRead) {
  const auto reason = [](const std::string& folder, double bytes) {
    try {
      measure_disk(folder, bytes, 1);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(reason("/nonexistent", 16 << 20), "/nonexistent: No such file or directory");
  EXPECT_NE(reason(testing::TempDir(), 1e18).find("too little free space"), std::string::npos);
}

}  // namespace
}  // namespace ridge
