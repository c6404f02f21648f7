// Each experiment on the CPU in quick mode: it ends, its numbers are sane, its equalities hold. How
// fast the kernels are depends on the machine and is not asserted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <set>

#include "lab/lab.h"
#include "lab/lab_doubt.h"
#include "lab/lab_figure.h"
#include "lab/lab_kernels.h"
#include "lab/lab_memory.h"
#include "lab/lab_run.h"
#include "lab/levels.h"
#include "lab/line_order.h"
#include "machine/detect.h"
#include "measure/cpu/noise.h"
#include "measure/cpu/read_probe.h"

namespace ridge {
namespace {

Lab& quick_lab() {
  static Lab lab = [] {
    set_cpu_probe(probe_cpu);
    LabOptions options;
    options.quick = true;
    return Lab(options);
  }();
  return lab;
}

class CpuExperiment : public testing::TestWithParam<const char*> {};

TEST_P(CpuExperiment, RunsWithSaneNumbers) {
  const Experiment& experiment = find_experiment(GetParam());
  Lab& lab = quick_lab();  // which reads memory to find the ceilings
  const PeakMemory peak;
  const LabResult result = experiment.on_cpu(lab);
#if !defined(__SANITIZE_ADDRESS__)  // which keeps what was freed
  EXPECT_LE(peak.growth(), own_bytes(experiment, LabDevice::cpu, true));
#endif
  EXPECT_FALSE(result.sentence.empty());
  EXPECT_FALSE(result.notes.empty());
  ASSERT_FALSE(result.series.empty());
  for (const LabSeries& series : result.series) {
    EXPECT_FALSE(series.points.empty()) << series.name;
    for (const LabPoint& point : series.points) {
      EXPECT_TRUE(std::isfinite(point.measured) && point.measured > 0) << series.name;
      // Starts are predicted where the machine was measured, and new threads never; integer
      // products where the stack has figures for the CPU's instructions.
      const std::string name = GetParam();
      if (!point.predicted() && (name == "launch" || series.name == "q8_0")) continue;
      EXPECT_TRUE(point.predicted()) << series.name << " at " << point.x;
      EXPECT_LT(point.band.low, point.band.expected) << series.name << " at " << point.x;
      EXPECT_LT(point.band.expected, point.band.high) << series.name << " at " << point.x;
    }
  }
  for (const LabCheck& check : result.checks) EXPECT_TRUE(check.holds) << check.what;
}

INSTANTIATE_TEST_SUITE_P(Lab, CpuExperiment,
                         testing::Values("roofline", "latency-hiding", "access-patterns", "stages",
                                         "launch", "attention", "fusion", "tiles", "flops-not-time",
                                         "recompute"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(LabKernels, ComputeTheirDefinition) {
  alignas(64) float a[512], b[512], c[512];
  for (int i = 0; i < 512; ++i) {
    a[i] = float(i % 9) - 4;
    b[i] = float(i % 5);
  }
  lab_kernels::apply_chain(c, a, 512, 3);
  for (int i = 0; i < 512; ++i) EXPECT_EQ(c[i], a[i] / 8 + 1.75f);
  EXPECT_EQ(lab_kernels::chain_sum(a, 512, 3), lab_kernels::chain_sum(c, 512, 0));
  lab_kernels::add(c, a, b, 512);
  for (int i = 0; i < 512; ++i) EXPECT_EQ(c[i], a[i] + b[i]);
  std::copy_n(a, 512, c);
  lab_kernels::silu_times(c, b, 512);
  for (int i = 0; i < 512; ++i) {
    EXPECT_NEAR(c[i], a[i] / (1 + std::exp(-a[i])) * b[i], 16 * 0x1p-22);
  }
}

TEST(LabKernels, SoftmaxOfAnyLength) {
  for (const size_t count : {1, 2, 7, 16, 33, 100}) {
    std::vector<float> row(count);
    double total = 0;
    for (size_t i = 0; i < count; ++i) {
      row[i] = float(i % 11) - 5;
      total += std::exp(0.5 * double(row[i]));
    }
    const std::vector<float> x = row;
    lab_kernels::softmax_row(row.data(), count, 0.5f);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(row[i], std::exp(0.5 * double(x[i])) / total, 1e-6) << count;
    }
  }
}

TEST(LabLevels, LieInsideOneAnother) {
  const std::vector<LabLevel> levels = lab_levels(quick_lab().machine(), 1);
  ASSERT_FALSE(levels.empty());
  for (size_t i = 1; i < levels.size(); ++i) {
    EXPECT_GT(levels[i].part_bytes, levels[i - 1].part_bytes);
  }
}

TEST(LabBands, Add) {
  const LabBand sum = LabBand{1, 2, 4} + LabBand{1, 2, 4};
  EXPECT_EQ(sum.low, 2);
  EXPECT_EQ(sum.expected, 4);
  EXPECT_EQ(sum.high, 8);
}

LabResult judged(int trusted, int inside, int doubtful, bool holds) {
  LabResult result;
  result.holds = holds;
  result.series.resize(1);
  for (int i = 0; i < trusted + doubtful; ++i) {
    LabPoint point;
    point.band = {1, 2, 3};
    point.measured = i < inside ? 2 : 9;
    if (i >= trusted) point.doubt = "busy";
    result.series[0].points.push_back(point);
  }
  return result;
}

TEST(LabVerdicts, PointsInsideTheirBandsDecide) {
  EXPECT_EQ(judge(judged(4, 4, 0, true), false).verdict, LabVerdict::confirmed);
  EXPECT_EQ(judge(judged(4, 4, 0, false), false).verdict, LabVerdict::refuted);
  EXPECT_EQ(judge(judged(4, 0, 0, false), false).verdict, LabVerdict::refuted);
  // It holds, and nobody knows why.
  EXPECT_EQ(judge(judged(4, 1, 0, true), false).verdict, LabVerdict::open);
  EXPECT_EQ(judge(LabResult(), false).verdict, LabVerdict::open);
}

TEST(LabVerdicts, ADisturbedMachineDecidesNothing) {
  for (const bool holds : {false, true}) {
    const LabJudgement busy = judge(judged(2, 2, 3, holds), false);
    EXPECT_EQ(busy.verdict, LabVerdict::open);
    EXPECT_NE(busy.reason.find("3 of 5"), std::string::npos) << busy.reason;
    EXPECT_EQ(judge(judged(4, 4, 0, holds), true).verdict, LabVerdict::open);  // --quick
  }
  EXPECT_EQ(judge(judged(3, 3, 2, true), false).verdict, LabVerdict::confirmed);
}

TEST(LabVerdicts, ABrokenEqualityRefutesWhateverTheTimesSay) {
  LabResult result = judged(0, 0, 4, true);
  result.checks = {{"the same tokens", false}};
  EXPECT_EQ(judge(result, true).verdict, LabVerdict::refuted);
}

TEST(LabVerdicts, ADoubtfulPointDecidesNothing) {
  LabResult result = judged(4, 4, 1, true);
  const std::vector<LabPoint>& points = result.series[0].points;
  decide(result, true, {&points[0], &points[1]});
  EXPECT_EQ(judge(result, false).verdict, LabVerdict::confirmed);
  decide(result, true, {&points[0], &points[4]});
  EXPECT_EQ(judge(result, false).verdict, LabVerdict::open);
  EXPECT_NE(judge(result, false).reason.find("busy"), std::string::npos);
}

TEST(LabVerdicts, HistoryTestsTheClaimsNumbers) {
  // The atlas has 286x and 16.7x in a decade, the claim 60x and 8 to 10x.
  const LabRun run = run_experiment(quick_lab(), find_experiment("history"));
  EXPECT_EQ(run.judgement.verdict, LabVerdict::refuted);
  EXPECT_NE(run.result.sentence.find("60x the peak"), std::string::npos) << run.result.sentence;
}

TEST(LabAgreement, SaysHowFarPointsLieOff) {
  LabResult result;
  result.series.resize(1);
  for (int i = 0; i < 11; ++i) {
    LabPoint point;
    point.band = {0.5, 1, 1.35};
    point.measured = 1 + 0.05 * i;  // errors 0, 5, ... 50 %
    result.series[0].points.push_back(point);
  }
  const Agreement a = agreement_of({&result, 1});
  EXPECT_NEAR(a.median_error, 0.25, 1e-9);
  EXPECT_NEAR(a.p90_error, 0.45, 1e-9);
  EXPECT_EQ(a.inside, 8);
}

TEST(LabAgreement, LeavesDoubtfulPointsOut) {
  const LabResult result = judged(4, 3, 2, true);
  const Agreement a = agreement_of({&result, 1});
  EXPECT_EQ(a.points, 4);
  EXPECT_EQ(a.inside, 3);
  EXPECT_EQ(a.left_out, 2);
  EXPECT_EQ(a.share(), 0.75);
  EXPECT_EQ(a.share_of_all(), 0.5);
  EXPECT_NE(agreement_text(a).find("3 of 4"), std::string::npos);
  EXPECT_NE(agreement_text(a).find("2 doubtful"), std::string::npos);
}

TEST(LabDoubts, OtherProcessesStealAndThrottling) {
  Disturbance before, after;
  EXPECT_EQ(doubt_between(before, after), "");
  const auto moment = [](double busy, double steal, double own_s) {
    Disturbance m;
    m.total = 200;
    m.busy = busy;
    m.steal = steal;
    m.own_s = own_s;
    return m;
  };
  const double ticks = double(sysconf(_SC_CLK_TCK));
  EXPECT_EQ(doubt_between(before, moment(110, 0, 100 / ticks)), "");
  EXPECT_NE(doubt_between(before, moment(150, 0, 100 / ticks)).find("other processes"),
            std::string::npos);
  EXPECT_NE(doubt_between(before, moment(100, 10, 100 / ticks)).find("other guests"),
            std::string::npos);
  after.throttled = 1;
  EXPECT_NE(doubt_between(before, after).find("quota"), std::string::npos);
}

TEST(LabDoubts, OtherProcessesAndHeatOfAGpu) {
  GpuMoment quiet, busy, hot, capped;
  quiet.clock = 1.9e9, quiet.processes = 1;
  busy = hot = capped = quiet;
  busy.processes = 2;
  hot.limits = "heat (hardware)";
  capped.limits = "the power limit";
  EXPECT_EQ(gpu_doubt(quiet, quiet, 1.98e9), "");
  EXPECT_NE(gpu_doubt(busy, quiet, 1.98e9).find("another process"), std::string::npos);
  EXPECT_NE(gpu_doubt(quiet, hot, 1.98e9).find("heat"), std::string::npos);
  EXPECT_EQ(gpu_doubt(quiet, capped, 1.98e9), "");  // it runs at its clock all the same
  capped.clock = 1.2e9;
  EXPECT_NE(gpu_doubt(quiet, capped, 1.98e9).find("1.20 of 1.98"), std::string::npos);
}

TEST(LabTimes, PairsAreComparedWithTheirNeighbours) {
  const auto spin = [](double us) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::duration<double>(us * 1e-6)) {
    }
  };
  const LabPair pair = quick_lab().alternate([&] { spin(300); }, [&] { spin(100); });
  EXPECT_NEAR(pair.ratio, 3, 0.3);
}

TEST(LabMemories, AreRefusedWhereTheyDoNotFit) {
  Experiment huge = find_experiment("history");
  EXPECT_EQ(why_no_room(quick_lab(), huge), "");
  huge.memory.quick_cpu = 1e18;
  EXPECT_NE(why_no_room(quick_lab(), huge).find("are free"), std::string::npos);
  const LabRun run = run_experiment(quick_lab(), huge);
  EXPECT_EQ(run.judgement.verdict, LabVerdict::open);
  EXPECT_TRUE(run.result.series.empty());
}

TEST(LabMemories, AreAnnouncedForEveryExperiment) {
  for (const Experiment& e : experiments()) {
    for (const LabDevice device : {LabDevice::cpu, LabDevice::cuda}) {
      if (!why_not_on(e, device).empty()) continue;
      for (const bool quick : {false, true}) {
        EXPECT_GT(own_bytes(e, device, quick), 0) << e.name;
        EXPECT_GE(announced_bytes(e, device, quick), own_bytes(e, device, quick)) << e.name;
      }
    }
  }
  // Nothing is probed for what times nothing.
  EXPECT_LT(announced_bytes(find_experiment("history"), LabDevice::cpu, false), 50e6);
}

TEST(LabRuns, SayWhyTheyCannotRunHere) {
  const LabRun run = run_experiment(quick_lab(), find_experiment("gpu-util"));
  EXPECT_EQ(run.judgement.verdict, LabVerdict::open);
  EXPECT_NE(run.result.sentence.find("GPU"), std::string::npos);
  for (const Experiment& e : experiments()) {
    EXPECT_EQ(why_not_on(e, LabDevice::cpu).empty(), e.on_cpu != nullptr) << e.name;
  }
}

TEST(LabPlot, CirclesAreDoubtfulPoints) {
  const LabResult result = judged(2, 2, 1, true);
  const Plot plot = lab_plot(experiments().front(), result);
  ASSERT_EQ(plot.series.size(), 3u);
  EXPECT_TRUE(plot.series[0].dashed);
  EXPECT_EQ(plot.series[1].x.size(), 2u);
  EXPECT_TRUE(plot.series[2].hollow);
  EXPECT_NE(lab_svg(experiments().front(), result).find("hollow"), std::string::npos);
}

TEST(LabFigure, CategoriesAreNamedAndNotJoined) {
  LabResult result = judged(3, 3, 0, true);
  result.categories = true;
  const char* names[] = {"barrier", "region", "new threads"};
  for (size_t i = 0; i < 3; ++i) result.series[0].points[i].label = names[i];
  const std::string svg = lab_svg(experiments().front(), result);
  const std::string text = lab_text_figure(experiments().front(), result);
  for (const char* name : names) {
    EXPECT_NE(svg.find(">" + std::string(name) + "<"), std::string::npos) << name;
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("class=\"band"), 3u);
  EXPECT_EQ(count("class=\"predicted"), 3u);  // a mark for each, no line through them
  EXPECT_NE(text.find("░"), std::string::npos);
}

TEST(LabFigure, NumbersHaveOneBandAndOneLine) {
  LabResult result = judged(3, 3, 0, true);
  for (size_t i = 0; i < 3; ++i) result.series[0].points[i].x = double(i + 1);
  const std::string svg = lab_svg(experiments().front(), result);
  EXPECT_EQ(svg.find("class=\"band"), svg.rfind("class=\"band"));
  EXPECT_NE(svg.find("class=\"predicted"), std::string::npos);
  EXPECT_EQ(lab_svg(experiments().front(), LabResult()), "");
}

TEST(LineOrder, IsAPermutationAndTheSameEveryTime) {
  const std::vector<uint32_t> order = shuffled_lines(1000, 3);
  EXPECT_EQ(std::set<uint32_t>(order.begin(), order.end()).size(), 1000u);
  EXPECT_EQ(*std::max_element(order.begin(), order.end()), 999u);
  EXPECT_EQ(order, shuffled_lines(1000, 3));
  EXPECT_NE(order, shuffled_lines(1000, 4));
}

}  // namespace
}  // namespace ridge
