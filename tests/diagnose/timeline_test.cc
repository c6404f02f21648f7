#include "diagnose/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace ridge {
namespace {

constexpr int64_t kUs = 1000, kMs = 1'000'000;

// A timeline whose times are microseconds.
struct Drawn {
  Timeline timeline;
  void kernel(double start, double duration, const char* name = "gemm", uint32_t correlation = 0,
              int64_t device = 0) {
    timeline.add_kernel(device, 0, int64_t(start * 1e3), int64_t(duration * 1e3),
                        timeline.intern(name), correlation);
  }
  void call(const char* function, double start, double duration, uint32_t correlation = 0) {
    const int64_t ns = int64_t(duration * 1e3);
    timeline.add_call(0, int64_t(start * 1e3), ns, host_call_kind(function, ns), correlation);
  }
  KernelProfile profile() { return timeline.profile("test"); }
};

TEST(Timeline, UnionOfOverlappingKernels) {
  Drawn drawn;
  drawn.kernel(0, 10);
  drawn.kernel(5, 10);
  drawn.kernel(6, 2);
  drawn.kernel(17, 3);
  const KernelProfile profile = drawn.profile();
  EXPECT_DOUBLE_EQ(profile.wall_s, 20e-6);
  EXPECT_DOUBLE_EQ(profile.busy_s, 18e-6);
  EXPECT_DOUBLE_EQ(profile.kernel_s, 25e-6);
  EXPECT_EQ(profile.launches, 4);
  // Gaps of a full queue are the device's own.
  for (double gap : profile.gap_s) EXPECT_EQ(gap, 0);
}

TEST(Timeline, AGapIsSplitByWhatTheHostDid) {
  Drawn drawn;
  drawn.kernel(0, 100);
  drawn.call("cudaStreamSynchronize", 50, 60);  // returns 10 us after the kernel
  drawn.call("cudaLaunchKernel", 150, 20, 7);   // after 40 us of Python
  drawn.kernel(180, 10, "gemm", 7);             // 10 us after the launch returned
  drawn.call("cudaLaunchKernel", 185, 2, 8);    // not in a gap
  const KernelProfile profile = drawn.profile();
  EXPECT_NEAR(profile.gap(GapCause::synchronize), 10e-6, 1e-12);
  EXPECT_NEAR(profile.gap(GapCause::host), 40e-6, 1e-12);
  EXPECT_NEAR(profile.gap(GapCause::launch), 30e-6, 1e-12);
  EXPECT_EQ(profile.gap(GapCause::outside), 0);
}

TEST(Timeline, AKernelThatWasQueuedAheadWaitsForTheDevice) {
  Drawn drawn;
  drawn.call("cudaLaunchKernel", 0, 5, 1);
  drawn.call("cudaLaunchKernel", 5, 5, 2);
  drawn.call("cudaLaunchKernel", 10, 5, 3);
  drawn.kernel(10, 50, "gemm", 1);
  drawn.kernel(100, 50, "gemm", 2);   // 40 us later: latency
  drawn.kernel(5150, 50, "gemm", 3);  // 5 ms later: an event of somebody else
  const KernelProfile profile = drawn.profile();
  EXPECT_NEAR(profile.gap(GapCause::launch), 40e-6, 1e-12);
  EXPECT_NEAR(profile.gap(GapCause::outside), 5e-3, 1e-12);
  EXPECT_EQ(profile.gap(GapCause::host), 0);
}

TEST(Timeline, AWaitForWorkOutsideTheFileIsNoHostGap) {
  Drawn drawn;
  drawn.kernel(0, 5);
  drawn.call("hipMemcpyWithStream", 10, 400'000);  // blocks: the device works on older kernels
  drawn.kernel(400'100, 300'000);
  const KernelProfile profile = drawn.profile();
  EXPECT_NEAR(profile.gap(GapCause::outside), 0.4, 1e-9);
  EXPECT_NEAR(profile.gap(GapCause::host), 95e-6, 1e-9);
  EXPECT_NEAR(profile.wall_s, 0.7001, 1e-9);
}

TEST(Timeline, WaitsBeforeAndAfterAreNotInTheWall) {
  Drawn drawn;
  drawn.call("cudaDeviceSynchronize", 0, 500'000);
  drawn.kernel(500'010, 100);
  drawn.call("cudaDeviceSynchronize", 500'020, 900'000);
  const KernelProfile profile = drawn.profile();
  EXPECT_NEAR(profile.wall_s, 100e-6, 1e-12);
  EXPECT_EQ(profile.gap(GapCause::outside), 0);
}

TEST(Timeline, NoWorkBetweenMarkedStepsIsOutside) {
  Drawn drawn;
  drawn.timeline.add_step(parse_step_annotation("step[DECODE bs=8]"), 0, 1 * kMs);
  drawn.kernel(100, 900);
  drawn.timeline.add_step(parse_step_annotation("step[DECODE bs=8]"), 300 * kMs, 1 * kMs);
  drawn.kernel(300'100, 900);
  drawn.kernel(302'000, 900);  // 1 ms of scheduling between two steps is the host's
  const KernelProfile profile = drawn.profile();
  EXPECT_NEAR(profile.gap(GapCause::outside), 0.2991, 1e-9);
  EXPECT_NEAR(profile.gap(GapCause::host), 1e-3, 1e-9);
  EXPECT_EQ(profile.steps, 2);
  EXPECT_EQ(profile.decode_tokens, 16);
}

TEST(Timeline, CollectivesAreExposedWhereNothingElseRuns) {
  Drawn drawn;
  drawn.kernel(0, 100, "gemm");
  drawn.kernel(50, 100, "ncclDevKernel_AllReduce");
  drawn.kernel(140, 60, "rms_norm");
  const KernelProfile profile = drawn.profile();
  EXPECT_NEAR(profile.exposed_collective_s, 40e-6, 1e-12);
  EXPECT_NEAR(profile.family_s(KernelFamily::collective), 100e-6, 1e-12);
}

TEST(Timeline, GraphsAreCountedByTheirLaunch) {
  Drawn drawn;
  drawn.call("cudaGraphLaunch", 0, 20, 5);
  drawn.kernel(30, 3, "gemm", 5);
  drawn.kernel(34, 3, "rms_norm", 5);
  drawn.call("cudaLaunchKernel", 40, 4, 6);
  drawn.kernel(50, 3, "argmax", 6);
  const KernelProfile profile = drawn.profile();
  EXPECT_EQ(profile.graph_launches, 1);
  EXPECT_EQ(profile.graph_kernels, 2);
  EXPECT_EQ(profile.launches, 3);
  EXPECT_NEAR(profile.median_kernel_s, 3e-6, 1e-12);
}

TEST(Timeline, SeveralDevicesAreMeans) {
  Drawn drawn;
  drawn.kernel(0, 100, "gemm", 0, 0);
  drawn.kernel(0, 300, "gemm", 0, 3);
  const KernelProfile profile = drawn.profile();
  EXPECT_EQ(profile.devices, 2);
  EXPECT_NEAR(profile.wall_s, 200e-6, 1e-12);
  EXPECT_NEAR(profile.busy_s, 200e-6, 1e-12);
  EXPECT_EQ(profile.launches, 1);
  ASSERT_EQ(profile.kernels.size(), 1u);
  EXPECT_NEAR(profile.kernels[0].seconds, 200e-6, 1e-12);
}

TEST(Timeline, TorchTopkRoutesOncePerLayer) {
  for (const int topk : {1, 24}) {
    Drawn drawn;
    for (int layer = 0; layer < 24; ++layer) drawn.kernel(layer * 20, 5, "flash_fwd_kernel");
    for (int i = 0; i < topk; ++i) drawn.kernel(i * 20 + 10, 5, "at::native::sbtopk::gatherTopK");
    const KernelProfile profile = drawn.profile();
    const KernelFamily family = topk == 1 ? KernelFamily::sampling : KernelFamily::routing;
    EXPECT_NEAR(profile.family_s(family), topk * 5e-6, 1e-12);
  }
}

TEST(Timeline, ListsTheLongestKernels) {
  Drawn drawn;
  for (int i = 1; i <= 60; ++i) drawn.kernel(i * 100, i, ("gemm" + std::to_string(i)).c_str());
  const KernelProfile profile = drawn.profile();
  ASSERT_EQ(profile.kernels.size(), 40u);
  EXPECT_EQ(profile.kernels.front().name, "gemm60");
  EXPECT_EQ(profile.kernels.back().name, "gemm21");
}

TEST(Timeline, ImpossibleTimesAreCounted) {
  Drawn drawn;
  drawn.kernel(0, 10);
  drawn.kernel(20, -1);
  drawn.timeline.add_kernel(0, 0, INT64_MAX, INT64_MAX, 0, 0);
  drawn.timeline.add_kernel(0, 0, INT64_MIN, 1, 0, 0);
  EXPECT_EQ(drawn.timeline.impossible(), 3u);
  EXPECT_EQ(drawn.timeline.kernels(), 1u);
  EXPECT_NEAR(drawn.profile().wall_s, 10e-6, 1e-12);
}

TEST(Timeline, AStrayTimestampDoesNotStretchTheWall) {
  Drawn drawn;
  drawn.kernel(0, 10);
  drawn.kernel(1.7e15, 10);
  drawn.kernel(1.7e15 + 12, 10);
  const KernelProfile profile = drawn.profile();
  EXPECT_NEAR(profile.wall_s, 32e-6, 1e-6);  // doubles of this size
}

TEST(Timeline, MemoryIsBounded) {
  Timeline timeline(1000);
  for (int i = 0; i < 2000; ++i)
    timeline.add_kernel(0, 0, i * kUs, 500, timeline.intern("gemm"), 0);
  EXPECT_EQ(timeline.left_out(), 1000u);
  EXPECT_EQ(timeline.profile("test").launches, 1000);
  // Names are few in real traces; a made one may have any number.
  Timeline names;
  for (int i = 0; i < 100'000; ++i)
    names.add_kernel(0, 0, i * kUs, 500, names.intern("k" + std::to_string(i)), 0);
  EXPECT_NEAR(names.profile("test").kernel_s, 0.05, 1e-9);
}

// Against a count per microsecond.
TEST(Timeline, AgreesWithCountingEveryMicrosecond) {
  std::mt19937 random(3);
  const auto below = [&](uint32_t n) { return int64_t(random() % n); };
  for (int round = 0; round < 50; ++round) {
    Timeline timeline;
    constexpr size_t kSpan = 3000;
    std::vector<bool> busy(kSpan), compute(kSpan), launch(kSpan), wait(kSpan);
    const auto mark = [](std::vector<bool>& which, int64_t start, int64_t length) {
      for (int64_t t = start; t < start + length; ++t) which[size_t(t)] = true;
    };
    for (int i = 0; i < 40; ++i) {
      const int64_t start = below(2900), length = 1 + below(59);
      const bool collective = below(4) == 0;
      timeline.add_kernel(0, 0, start * kUs, length * kUs,
                          timeline.intern(collective ? "nccl" : "gemm"), 0);
      mark(busy, start, length);
      if (!collective) mark(compute, start, length);
    }
    for (int i = 0; i < 30; ++i) {
      const int64_t start = below(2900), length = 1 + below(59);
      const bool waits = below(2) == 0;
      timeline.add_call(0, start * kUs, length * kUs, waits ? HostCall::wait : HostCall::launch, 0);
      mark(waits ? wait : launch, start, length);
    }
    const size_t first = size_t(std::find(busy.begin(), busy.end(), true) - busy.begin());
    const size_t last = kSpan - size_t(std::find(busy.rbegin(), busy.rend(), true) - busy.rbegin());
    int64_t busy_us = 0, exposed_us = 0, gaps[3] = {};
    for (size_t t = first; t < last; ++t) {
      busy_us += busy[t];
      exposed_us += busy[t] && !compute[t];
    }
    for (size_t t = first; t < last;) {
      size_t end = t;
      while (!busy[end]) ++end;
      if (end - t > 5)
        for (size_t i = t; i < end; ++i) ++gaps[launch[i] ? 0 : wait[i] ? 1 : 2];
      t = end + 1;
    }
    const KernelProfile profile = timeline.profile("test");
    EXPECT_NEAR(profile.busy_s, double(busy_us) * 1e-6, 1e-12);
    EXPECT_NEAR(profile.exposed_collective_s, double(exposed_us) * 1e-6, 1e-12);
    EXPECT_NEAR(profile.gap(GapCause::launch), double(gaps[0]) * 1e-6, 1e-12);
    EXPECT_NEAR(profile.gap(GapCause::synchronize), double(gaps[1]) * 1e-6, 1e-12);
    EXPECT_NEAR(profile.gap(GapCause::host), double(gaps[2]) * 1e-6, 1e-12);
  }
}

// A step that is marked twice, by the profiler and by the engine, is one.
TEST(StepAnnotation, TheMostTellingMarkCounts) {
  Timeline timeline;
  timeline.add_kernel(0, 0, 0, 1000, timeline.intern("gemm"), 0);
  for (const char* text : {"ProfilerStep#1", "Forward", "step[EXTEND bs=2 toks=512]",
                           "execute_context_2(512)_generation_0(0)"})
    timeline.add_step(parse_step_annotation(text), 0, 1000);
  const KernelProfile profile = timeline.profile("test");
  EXPECT_EQ(profile.steps, 1);
  EXPECT_EQ(profile.prefill_tokens, 512);
}

TEST(StepAnnotation, Engines) {
  using Source = StepAnnotation::Source;
  struct Case {
    const char* text;
    Source source;
    double prefill, decode;
  };
  for (const Case& c : {
           Case{"ProfilerStep#6", Source::profiler, 0, 0},
           Case{"step[DECODE bs=32]", Source::engine, 0, 32},
           Case{"step[EXTEND bs=15 toks=15360]", Source::engine, 15360, 0},
           Case{"execute_15360_context_15(sq15360sk15360sqsq1sqsk1)_generation_0(sq0sk0)",
                Source::execute, 15360, 0},
           Case{"execute_9_context_1(sq512sk900)_generation_8(sq8sk4000)", Source::execute, 512, 8},
           Case{"execute_context_1(512)_generation_8(9)", Source::execute, 512, 9},
           Case{"[Executor] _forward_step 25: 1 ctx reqs, 8 gen reqs", Source::engine, 0, 8},
           Case{"gpu_model_runner: forward", Source::forward, 0, 0},
           Case{"execute_", Source::none, 0, 0},
           Case{"execute_context_1(", Source::execute, 0, 0},
           Case{"step[DECODE bs=99999999999999999999]", Source::engine, 0, 0},
           Case{"forward", Source::none, 0, 0},
           Case{"", Source::none, 0, 0},
       }) {
    const StepAnnotation step = parse_step_annotation(c.text);
    EXPECT_EQ(int(step.source), int(c.source)) << c.text;
    EXPECT_EQ(step.prefill_tokens, c.prefill) << c.text;
    EXPECT_EQ(step.decode_tokens, c.decode) << c.text;
  }
}

}  // namespace
}  // namespace ridge
