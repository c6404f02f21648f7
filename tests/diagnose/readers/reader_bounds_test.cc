// The bounds of the readers of evidence: each is met and exceeded by one.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_cpu.h"
#include "diagnose/readers/device_samples.h"
#include "diagnose/readers/json_records.h"
#include "diagnose/readers/metric_series.h"
#include "diagnose/readers/metrics_page.h"
#include "diagnose/readers/metrics_window.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

template <typename Line>
std::string lines_of(size_t count, const Line& line) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += line(std::to_string(i));
  return text;
}

template <typename Call>
std::string bound_error(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<EvidenceFile> files_of_metrics(const std::string& text) {
  return observe_metrics(parse_metrics(text, "m.prom"), 0);
}

TEST(ReaderBounds, EnginesOfAService) {
  const auto page = [](size_t engines) {
    return lines_of(engines, [](const std::string& i) {
      return "vllm:num_requests_running{engine=\"" + i + "\"} 1\n";
    });
  };
  EXPECT_EQ(files_of_metrics(page(kMostEngines)).front().setup.dp, int(kMostEngines));
  EXPECT_EQ(bound_error([&] { files_of_metrics(page(kMostEngines + 1)); }),
            "m.prom: the label engine has 65537 values: no service has more than 65536 engines");
}

TEST(ReaderBounds, EnginesOfALog) {
  const auto log = [](size_t engines) {
    return lines_of(engines, [](const std::string& i) {
      return "Engine " + i + ": Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs\n";
    });
  };
  EXPECT_EQ(read_engine_log(log(kMostEngines), "a.log")->setup.dp, int(kMostEngines));
  EXPECT_EQ(bound_error([&] { read_engine_log(log(kMostEngines + 1), "a.log"); }),
            "a.log: a log of more than 65536 engines");
}

TEST(ReaderBounds, NamesOfMetrics) {
  const auto page = [](size_t names) {
    return "vllm:num_requests_running 1\n" +
           lines_of(names - 1, [](const std::string& i) { return "vllm:n" + i + " 1\n"; });
  };
  EXPECT_EQ(files_of_metrics(page(MetricSeries::kMostNames)).size(), 1u);
  EXPECT_NE(bound_error([&] {
              files_of_metrics(page(MetricSeries::kMostNames + 1));
            }).find("more than 16384 names of metrics"),
            std::string::npos);
}

TEST(ReaderBounds, Scrapes) {
  const auto scrapes = [](size_t count) {
    return lines_of(count, [](const std::string&) { return std::string("vllm:a 1\n"); });
  };
  EXPECT_EQ(parse_metrics(scrapes(kMostPages), "m.prom").size(), kMostPages);
  EXPECT_EQ(bound_error([&] { parse_metrics(scrapes(kMostPages + 1), "m.prom"); }),
            "m.prom: more than 100000 scrapes");
  // Of all files together.
  const std::string half = scrapes(kMostPages / 2), rest = scrapes(kMostPages / 2 + 1);
  EXPECT_EQ(bound_error([&] {
              read_evidence({{"a.prom", half, 0}, {"b.prom", rest, 0}}, {});
            }),
            "b.prom: more than 100000 scrapes");
}

TEST(ReaderBounds, CellsOfALine) {
  EXPECT_EQ(split_csv(std::string(kMostCells - 1, ',')).size(), kMostCells);
  EXPECT_EQ(split_csv(std::string(kMostCells, ',')).size(), kMostCells);
  EXPECT_EQ(split_cells(std::string(kMostCells + 1, '|')).size(), kMostCells);
  EXPECT_EQ(split_cells(std::string(kMostCells + 2, '|')).size(), kMostCells);
}

TEST(ReaderBounds, ValuesOfARecord) {
  // {"a":[1,1,...]}: the brackets count as two values, each comma as one.
  const auto record = [](size_t values) {
    std::string text = "{\"a\":[";
    for (size_t i = 2; i < values; ++i) text += "1,";
    return text + "1]}";
  };
  size_t most = kMostRecordValues;
  while (most + 1 <= kMostRecordValues + record(most + 1).size() / kBytesPerRecordValue)
    most += 1000;
  while (most > kMostRecordValues + record(most).size() / kBytesPerRecordValue) --most;
  std::vector<std::string> notes;
  size_t found = 0;
  const auto visit = [&](const nlohmann::json& object, size_t) { found = object["a"].size(); };
  EXPECT_EQ(for_json_records(record(most), visit, notes), 1u);
  EXPECT_EQ(found, most - 1);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(for_json_records(record(most + 1) + "\n{\"a\":[]}", visit, notes), 1u);
  EXPECT_EQ(found, 0u);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "line 1: an object of more than 500000 values is not read");
}

TEST(ReaderBounds, DepthOfARecord) {
  const auto record = [](int depth) {
    return "{\"a\":" + std::string(size_t(depth) - 1, '[') + std::string(size_t(depth) - 1, ']') +
           "}";
  };
  std::vector<std::string> notes;
  const auto visit = [](const nlohmann::json&, size_t) {};
  EXPECT_EQ(for_json_records(record(kMaxJsonDepth), visit, notes), 1u);
  EXPECT_EQ(for_json_records(record(kMaxJsonDepth + 1), visit, notes), 0u);
}

// The end of the line was sought for each object: four times the records took 16 times as long.
TEST(ReaderBounds, ManyRecordsOfALine) {
  const auto seconds_of = [](size_t records) {
    std::string text;
    for (size_t i = 0; i < records; ++i) text += "{},";
    std::vector<std::string> notes;
    const double before = thread_cpu_s();
    EXPECT_EQ(for_json_records(
                  text, [](const nlohmann::json&, size_t) {}, notes),
              records);
    return thread_cpu_s() - before;
  };
  EXPECT_LT(seconds_of(1'000'000), 9 * seconds_of(250'000));
}

TEST(ReaderBounds, BrokenRecordsAreCounted) {
  std::vector<std::string> notes;
  std::string text = lines_of(100'000, [](const std::string&) { return std::string("{x}\n"); });
  text += "{\"a\":1e999}\n{\"a\":\"\xff\"}\n{\"a\":2}\n";
  size_t visited = 0;
  for_json_records(
      text, [&](const nlohmann::json& object, size_t) { visited += object["a"] == 2; }, notes);
  EXPECT_EQ(visited, 1u);
  EXPECT_EQ(notes.back(), "100002 objects in all are not valid JSON");
}

TEST(ReaderBounds, Devices) {
  DeviceSamples samples;
  for (size_t i = 0; i < DeviceSamples::kMostDevices; ++i) {
    samples.add(Quantity::power, std::to_string(i), 1, "power.draw");
  }
  samples.add(Quantity::power, "0", 1, "power.draw");
  EXPECT_EQ(samples.devices(), DeviceSamples::kMostDevices);
  EXPECT_EQ(bound_error([&] { samples.add(Quantity::power, "one more", 1, "power.draw"); }),
            "power.draw: more than 65536 devices in one file");
}

TEST(ReaderBounds, KernelsOfNsightCompute) {
  const auto profile = [](size_t kernels) {
    return read_nsight_compute(
        "Kernel Name,gpu__time_duration.sum\n,ns\n" +
            lines_of(kernels, [](const std::string& i) { return "gemm_" + i + ",1\n"; }),
        "a.csv");
  };
  const auto has_further = [](const EvidenceFile& file) {
    return file.profile->family_s(KernelFamily::other) > 0;
  };
  const auto at = profile(65'536), beyond = profile(65'537);
  EXPECT_EQ(at->profile->launches, 65'536);
  EXPECT_FALSE(has_further(*at));
  EXPECT_EQ(beyond->profile->launches, 65'537);
  EXPECT_TRUE(has_further(*beyond));
}

TEST(ReaderBounds, RunsOfLlamaBench) {
  const auto file = [](size_t rows) {
    return read_llama_bench(
        "| model | test | t/s |\n" +
            lines_of(rows, [](const std::string&) { return std::string("| a | tg1 | 1 |\n"); }),
        "a.md");
  };
  EXPECT_TRUE(file(kMaxRuns)->notes.empty());
  EXPECT_EQ(file(kMaxRuns + 1)->notes.front(), "rows after the first 10000 are not read");
}

TEST(ReaderBounds, NotesOfAFile) {
  const auto notes = [](size_t devices) {
    const std::string page = lines_of(devices, [](const std::string& i) {
      return "DCGM_FI_DEV_XID_ERRORS{UUID=\"" + i + "\"} 31\nDCGM_FI_DEV_GPU_UTIL{UUID=\"" + i +
             "\"} 50\n";
    });
    return read_evidence({{"d.prom", page, 0}}, {}).files.front().notes;
  };
  EXPECT_EQ(notes(100).size(), 100u);
  const std::vector<std::string> many = notes(101);
  ASSERT_EQ(many.size(), 101u);
  EXPECT_EQ(many.back(), "and 1 more notes");
}

}  // namespace
}  // namespace ridge
