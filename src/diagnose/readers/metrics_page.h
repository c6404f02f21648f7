// One scrape of a Prometheus endpoint, parsed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

struct MetricSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;

  std::string_view label(std::string_view key) const;  // empty where there is none
};

struct MetricsPage {
  std::string source;  // path or URL
  std::vector<MetricSample> samples;
  std::vector<std::pair<std::string, std::string>> types;  // metric name -> "counter", "gauge", ...
  std::optional<double> time_s;  // when it was taken, seconds of any clock that its pages share
  bool time_from_file = false;   // time_s is the file's modification time
  std::vector<std::string> notes;
};

// Of all files of a case: a day of one a second. Above: Error.
inline constexpr size_t kMostPages = 100'000;

bool is_prometheus_text(std::string_view head);

// A file may hold several scrapes, one after the other: a series that occurs again begins a new
// page. Lines that are no samples become notes. Throws Error where no line is one.
std::vector<MetricsPage> parse_metrics(std::string_view text, const std::string& source);

}  // namespace ridge
