// What a microbenchmark found: one number with its spread, how it was taken and whether to lean on
// it. A report is the readings of one device.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "machine/machine.h"

namespace ridge {

enum class Dimension : uint8_t { bandwidth, rate, time, size, clock };  // bytes/s, ops/s, s, B, Hz

struct Reading {
  std::string id;    // stable over runs and versions: "DRAM.copy", "peak.fp32.AVX2"
  std::string path;  // the number of Machine that it measures; empty: it stands beside them
  Dimension quantity = Dimension::bandwidth;
  double value = 0;          // median of the samples
  double low = 0, high = 0;  // their 10th and 90th percentile
  int samples = 0;
  std::string how;    // what was done, and how bytes or operations are counted
  std::string doubt;  // why not to lean on it; empty: no reason seen

  double spread() const;  // (high - low) / value
};

// Median and percentiles of samples that are already rates, times or sizes. At least one sample.
Reading summarize(std::string id, std::string path, Dimension quantity, std::vector<double> samples,
                  std::string how);
double median(std::vector<double> values);  // of at least one

struct Curve {
  std::string id;         // "latency.huge", "read.all"
  std::string label;      // "random chase, huge pages"
  Dimension quantity;     // of y
  std::vector<double> x;  // working set, bytes
  std::vector<double> y;
};

struct Report {
  Machine base;  // what is known without measuring: detection, or the atlas entry
  std::vector<Reading> readings;
  std::vector<Curve> curves;
  std::vector<std::string> conditions;  // clocks, steal, power: "clock 3.70 GHz before, 3.69 after"
  std::vector<std::string> missing;     // what could not be measured, and why

  const Reading* find(std::string_view id) const;
};

enum class Effort : uint8_t { quick, full };  // about 15 s and 2 minutes a device

using StepProgress = std::function<void(const std::string& step)>;

// The measured numbers alone, under the base's name, ready to lie over it: readings that have a
// path and are not implausible (band.h).
Machine measured_machine(const Report& report, const std::string& date);

// A machine file: measured_machine() plus everything seen, under "measurement".
nlohmann::json report_to_json(const Report& report, const std::string& date, Effort effort);
// The readings of such a file. A plain machine file gives its numbers, without spread.
std::vector<Reading> readings_from_json(const nlohmann::json& file, std::string_view where);

std::string quantity_text(Dimension quantity, double value);  // "4.65 TB/s", "98 ns"

}  // namespace ridge
