// The experiments on whole steps and on serving, with tiny models. Speeds are not judged here: the
// machine that runs the tests may be busy.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "lab/lab.h"
#include "lab/lab_engine.h"
#include "lab/lab_memory.h"
#include "lab/lab_ranks.h"
#include "lab/lab_run.h"
#include "machine/detect.h"

namespace ridge {
namespace {

// A machine of invented rates: what is tested here does not depend on the real ones.
std::optional<CpuProbe> invented_probe() {
  return CpuProbe{.read_bandwidth = Measured{20e9, 0, "invented"},
                  .no_read_bandwidth = "",
                  .cache_bandwidth = Measured{80e9, 0, "invented"},
                  .clock = Measured{3e9, 0, "invented"}};
}

Lab& engine_lab() {
  static Lab lab([] {
    set_cpu_probe(invented_probe);
    LabOptions options;
    options.quick = true;
    options.threads = 1;
    return options;
  }());
  return lab;
}

// The machine is detected once in a process: another test may have done it without a probe.
bool bandwidth_is_known() { return engine_lab().machine().memory().read_bandwidth.has_value(); }

class EngineExperiment : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineExperiment, GivesFinitePointsWithBandsFixedBeforeAndItsEqualitiesHold) {
  if (!bandwidth_is_known()) GTEST_SKIP() << "this machine was detected without a bandwidth";
  const Experiment& experiment = find_experiment(GetParam());
  const LabRun run = run_experiment(engine_lab(), experiment);
  const LabResult& result = run.result;
#if !defined(__SANITIZE_ADDRESS__)  // which keeps what was freed
  EXPECT_LE(run.peak_bytes, own_bytes(experiment, LabDevice::cpu, true));
#endif
  EXPECT_FALSE(result.sentence.empty());
  EXPECT_EQ(result.sentence.find("nan"), std::string::npos) << result.sentence;
  EXPECT_EQ(result.sentence.find("inf"), std::string::npos) << result.sentence;
  if (result.series.empty() && lab_rank_counts(engine_lab()).empty()) {
    GTEST_SKIP() << result.sentence;  // ranks need two cores
  }
  ASSERT_FALSE(result.series.empty());
  for (const LabSeries& series : result.series) {
    EXPECT_FALSE(series.points.empty()) << series.name;
    for (const LabPoint& point : series.points) {
      EXPECT_TRUE(std::isfinite(point.measured)) << series.name << " " << point.x;
      EXPECT_GE(point.measured, 0) << series.name << " " << point.x;
      if (!point.predicted()) continue;
      EXPECT_LE(point.band.low, point.band.expected) << series.name << " " << point.x;
      EXPECT_GE(point.band.high, point.band.expected) << series.name << " " << point.x;
      EXPECT_TRUE(std::isfinite(point.band.high)) << series.name << " " << point.x;
    }
  }
  // A tiny model answers no question of speed, so only a broken equality can refute.
  EXPECT_NE(run.judgement.verdict, LabVerdict::refuted) << result.sentence;
  for (const LabCheck& check : result.checks) EXPECT_TRUE(check.holds) << check.what;
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Lab, EngineExperiment,
                         ::testing::Values("decode", "prefill-decode", "batching", "context",
                                           "kv-cache", "gqa", "memory", "weights-bits", "kv-bits",
                                           "pages", "continuous-batching", "chunked-prefill",
                                           "prefix-reuse", "speculation", "ranks",
                                           "tensor-parallel"),
                         test_name);

TEST(LabEngine, TheBandOfAStepIsTheStacks) {
  StepEstimate estimate;
  estimate.roof_s = 1, estimate.low_s = 2, estimate.expected_s = 3, estimate.high_s = 4;
  const LabBand band = band_of(estimate);
  EXPECT_EQ(band.low, 2);  // not the roof
  EXPECT_EQ(band.expected, 3);
  EXPECT_EQ(band.high, 4);
}

TEST(LabEngine, ShuffledPagesGiveTheTokensOfPagesInOrder) {
  Lab& lab = engine_lab();
  const LabShape shape = lab_shape(lab);
  const auto runner = lab_runner(lab, lab_weights(lab, shape, Storage::bf16),
                                 {.cache_tokens = 256, .max_tokens = 64});
  const std::vector<Token> prompt(50, Token{7});
  EXPECT_EQ(lab_continue(*runner, prompt, 8, 3), lab_continue(*runner, prompt, 8));
}

TEST(LabEngine, BandOfARateFallsWhereTheBandOfSecondsRises) {
  const LabBand rate = rate_of({1, 2, 4}, 8);
  EXPECT_EQ(rate.low, 2);
  EXPECT_EQ(rate.expected, 4);
  EXPECT_EQ(rate.high, 8);
}

TEST(LabEngine, LongerStepsAreNotPredictedToBeFaster) {
  if (!bandwidth_is_known()) GTEST_SKIP() << "this machine was detected without a bandwidth";
  Lab& lab = engine_lab();
  const auto runner =
      lab_runner(lab, lab_weights(lab, lab_shape(lab), Storage::bf16), {.cache_tokens = 64});
  LabPredictor predictor(lab, *runner);
  double before = 0;
  for (const double tokens : {1.0, 4.0, 16.0, 64.0}) {
    const StepEstimate step = predictor.step({1, tokens, 0, 1});
    EXPECT_GE(step.expected_s, before);
    before = step.expected_s;
  }
  EXPECT_LT(predictor.step({1, 1, 16, 1}).expected_s, predictor.step({8, 1, 4096, 1}).expected_s);
}

}  // namespace
}  // namespace ridge
