// Readings, bands, files and drift: what is common to all devices.
#include "measure/reading.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "machine/atlas.h"
#include "measure/band.h"
#include "measure/compare.h"

namespace ridge {
namespace {

Reading reading(const std::string& id, const std::string& path, Dimension quantity, double value) {
  return summarize(id, path, quantity, {value}, "test");
}

TEST(Reading, TakesMedianAndPercentiles) {
  const Reading found =
      summarize("x", "", Dimension::time, {5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11}, "test");
  EXPECT_EQ(found.value, 6);
  EXPECT_EQ(found.low, 2);
  EXPECT_EQ(found.high, 10);
  EXPECT_EQ(found.samples, 11);
  EXPECT_NEAR(found.spread(), 8.0 / 6, 1e-12);
  EXPECT_EQ(median({3, 1}), 2);
}

TEST(Band, HoldsAReadingAgainstTheDatasheet) {
  const Machine h200 = find_machine("h200");
  const auto verdict = [&](double value) {
    return judge(reading("HBM.read", "levels.HBM.read_bandwidth", Dimension::bandwidth, value),
                 h200)
        .verdict;
  };
  EXPECT_EQ(verdict(4.65e12), ReadingVerdict::good);
  EXPECT_EQ(verdict(3.0e12), ReadingVerdict::slow);
  EXPECT_EQ(verdict(9.9e12), ReadingVerdict::implausible);  // the L2 answered
  EXPECT_EQ(verdict(0.1e12), ReadingVerdict::implausible);
  EXPECT_EQ(verdict(0), ReadingVerdict::implausible);
  const auto launch = [&](double value) {
    return judge(reading("launch.graph", "launch.graph", Dimension::time, value), h200).verdict;
  };
  EXPECT_EQ(launch(550e-9), ReadingVerdict::good);
  EXPECT_EQ(launch(2e-6), ReadingVerdict::slow);
}

TEST(Band, NamesLevelsThatContradictEachOther) {
  Report report;
  report.readings = {reading("L2.read", "", Dimension::bandwidth, 1e11),
                     reading("DRAM.read", "", Dimension::bandwidth, 2e11),
                     reading("L2.latency", "", Dimension::time, 4e-9),
                     reading("DRAM.latency", "", Dimension::time, 1e-9)};
  EXPECT_EQ(contradictions(report).size(), 2u);
  report.readings[1].value = report.readings[1].low = report.readings[1].high = 5e10;
  EXPECT_EQ(contradictions(report).size(), 1u);
}

Report sample_report() {
  Report report;
  report.base = find_machine("h200");
  report.readings = {
      reading("HBM.read", "levels.HBM.read_bandwidth", Dimension::bandwidth, 4.7e12),
      reading("HBM.copy", "", Dimension::bandwidth, 4.2e12),
      reading("L2.read", "levels.L2.read_bandwidth", Dimension::bandwidth, 99e12),  // impossible
      reading("launch.graph", "launch.graph", Dimension::time, 500e-9),
      reading("gemm.bf16.sustained", "sustained.bf16", Dimension::rate, 7.2e14),
      reading("host.to_device", "levels.host.read_bandwidth", Dimension::bandwidth, 55e9)};
  report.curves = {{"latency", "chase", Dimension::time, {1024, 2048}, {1e-9, 2e-9}}};
  report.missing = {"disk: no"};
  return report;
}

TEST(Report, BecomesAMachineThatLiesOverTheAtlas) {
  const Report report = sample_report();
  const Machine measured = measured_machine(report, "2026-11-15");
  const Machine whole = overlay(report.base, measured);
  EXPECT_EQ(whole.level("HBM")->read_bandwidth, 4.7e12);
  EXPECT_EQ(whole.level("HBM")->capacity, report.base.level("HBM")->capacity);
  EXPECT_EQ(whole.launch.graph, 500e-9);
  EXPECT_EQ(whole.sustained[static_cast<int>(DType::bf16)], 7.2e14);
  EXPECT_EQ(whole.level("host")->read_bandwidth, 55e9);
  // What cannot be true never reaches the machine.
  EXPECT_EQ(whole.level("L2")->read_bandwidth, report.base.level("L2")->read_bandwidth);
  const Provenance* provenance = provenance_of(whole, "levels.HBM.read_bandwidth");
  ASSERT_NE(provenance, nullptr);
  EXPECT_EQ(provenance->origin, Origin::measured);
  EXPECT_EQ(provenance->date, "2026-11-15");
  EXPECT_EQ(provenance_of(whole, "levels.L1.capacity")->origin, Origin::datasheet);
}

TEST(Report, FileIsAMachineFileAndReadsBack) {
  const Report report = sample_report();
  const nlohmann::json file = report_to_json(report, "2026-11-15", Effort::quick);
  const Machine machine = machine_from_json(file, "file");
  EXPECT_EQ(machine.name, "h200");
  const std::vector<Reading> again = readings_from_json(file, "file");
  ASSERT_EQ(again.size(), report.readings.size());
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].id, report.readings[i].id);
    EXPECT_EQ(again[i].value, report.readings[i].value);
    EXPECT_EQ(again[i].path, report.readings[i].path);
  }
  EXPECT_EQ(file["measurement"]["missing"][0], "disk: no");
}

TEST(Report, PlainMachineFilesGiveTheirNumbers) {
  const std::vector<Reading> numbers =
      readings_from_json(machine_to_json(find_machine("h200")), "h200");
  EXPECT_GT(numbers.size(), 10u);
  const std::vector<Drift> drifts = compare(numbers, sample_report().readings, 0.05);
  EXPECT_FALSE(drifts.empty());
}

TEST(Report, BrokenFilesAreRefusedWithTheirPlace) {
  nlohmann::json file = report_to_json(sample_report(), "2026-11-15", Effort::quick);
  file["measurement"]["readings"][1]["value"] = "fast";
  EXPECT_THROW(readings_from_json(file, "file"), Error);
  file["measurement"]["readings"][1].erase("value");
  EXPECT_THROW(readings_from_json(file, "file"), Error);
  file["measurement"] = nlohmann::json::object();
  EXPECT_THROW(readings_from_json(file, "file"), Error);
}

TEST(Compare, FindsWhatFellAndOnlyThat) {
  const std::vector<Reading> before = {
      reading("a", "", Dimension::bandwidth, 100), reading("b", "", Dimension::time, 1),
      reading("c", "", Dimension::rate, 100), reading("d", "", Dimension::clock, 100),
      reading("e", "", Dimension::bandwidth, 100)};
  std::vector<Reading> after = {
      reading("a", "", Dimension::bandwidth, 90), reading("b", "", Dimension::time, 1.2),
      reading("c", "", Dimension::rate, 97),      reading("d", "", Dimension::clock, 50),
      reading("e", "", Dimension::bandwidth, 50), reading("new", "", Dimension::bandwidth, 1)};
  after[4].doubt = "noisy";
  const std::vector<Drift> drifts = compare(before, after, 0.05);
  ASSERT_EQ(drifts.size(), 5u);
  int fell = 0;
  for (const Drift& drift : drifts) {
    fell += drift.fell;
    EXPECT_EQ(drift.fell, drift.id == "a" || drift.id == "b") << drift.id;
  }
  EXPECT_EQ(fell, 2);
  EXPECT_LE(drifts.front().change, drifts.back().change);
}

}  // namespace
}  // namespace ridge
