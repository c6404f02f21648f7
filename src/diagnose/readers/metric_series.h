// The series of one engine over the scrapes of a window, and what they say about it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "diagnose/evidence.h"
#include "diagnose/readers/metrics_page.h"

namespace ridge {

// What the scrapes cover.
struct MetricsSpan {
  size_t pages = 1;
  double seconds = 0;    // 0: not known
  bool lifetime = true;  // one scrape: counters are totals since the server's start

  Trust counters() const { return lifetime ? Trust::lifetime : Trust::window; }
  // A few instants are no average.
  Trust gauges() const { return pages < 5 ? Trust::instant : Trust::window; }
};

enum class GaugeFold : uint8_t { sum, mean };  // over engines and replicas

struct MetricHistogram {
  double sum = 0, count = 0;
  std::vector<std::pair<double, double>> buckets;  // upper end -> observations up to it; sorted
};

// Keeps only the series that have this label. An empty key keeps all.
using LabelFilter = std::pair<std::string_view, std::string_view>;

class MetricSeries {
 public:
  struct Point {
    size_t page;
    double value;
  };
  struct Series {
    const MetricSample* sample;  // the first one: for its labels
    uint64_t rank;               // tensor, pipeline and expert rank
    std::vector<Point> points;
  };

  // Engines have some hundred. Above: Error.
  static constexpr size_t kMostNames = 16'384;
  // `name` is the sample's without the engine's prefix. Ranks of one model repeat the same numbers:
  // the lowest is kept. The sample must outlive this object.
  void add(std::string_view name, const MetricSample& sample, size_t page);
  // Forgets the pages before `page`.
  void begin_at(size_t page);
  // Counters that the first page lacks count for nothing, rather than from zero.
  void need_first_page() { need_first_page_ = true; }
  size_t names_at(size_t page) const;  // how many the page has
  bool empty() const { return series_.empty(); }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  size_t count(std::string_view name) const;
  const MetricSample* first(std::string_view name) const;
  std::vector<const MetricSample*> all(std::string_view name) const;
  // The most frequent value of a label; how many values there are goes to `values`.
  std::string common_label(std::string_view key, size_t& values) const;

  // Mean over the pages of the fold over the series.
  std::optional<double> gauge(std::string_view name, GaugeFold fold, LabelFilter filter = {}) const;
  std::vector<Point> sums(std::string_view name) const;  // over the series, for every page
  double lowest(std::string_view name) const;            // of sums(); 0 where there is none
  // Lowest and highest series, each as its mean over the pages.
  std::optional<std::pair<double, double>> spread(std::string_view name) const;
  // The increase over the window, or the total where `lifetime`: of NAME_total, else NAME.
  std::optional<double> counter(std::string_view name, bool lifetime,
                                LabelFilter filter = {}) const;
  std::optional<MetricHistogram> histogram(std::string_view name, bool lifetime,
                                           LabelFilter filter = {}) const;
  // Names that nobody asked for, without the suffixes of histograms and counters.
  std::vector<std::string> unasked(const std::set<std::string_view>& ignored) const;

  // Calls `visit(name, series)` for every series, in no order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [name, group] : series_) {
      for (const auto& [hash, series] : group) visit(name, series);
    }
  }

 private:
  using Group = std::unordered_map<uint64_t, Series>;
  const Group* find(std::string_view name) const;
  const Group* ask(std::string_view name) const;  // find(), and the name becomes known
  bool is_on(const Group& group, size_t page) const;

  std::map<std::string, Group, std::less<>> series_;
  mutable std::set<std::string, std::less<>> asked_;
  size_t begin_ = 0;
  bool need_first_page_ = false;
};

// Writes what a MetricSeries says into an EvidenceFile. Every function returns whether the quantity
// was observed; of several names the first that the engine has is taken. Values that cannot be
// (negative, not finite, shares above 1) become notes.
class MetricsObserver {
 public:
  using Names = std::initializer_list<const char*>;
  MetricsObserver(const MetricSeries& metrics, const MetricsSpan& span, std::string prefix,
                  EvidenceFile& out)
      : series(metrics), file(out), span_(span), prefix_(std::move(prefix)) {}

  bool gauge(Quantity quantity, Names names, GaugeFold fold, double scale = 1,
             LabelFilter filter = {});
  bool total(Quantity quantity, Names names, LabelFilter filter = {});
  bool rate(Quantity quantity, Names names, LabelFilter filter = {});
  bool mean(Quantity quantity, Names names, LabelFilter filter = {}, double scale = 1);
  // Share or ratio of two increases.
  bool ratio(Quantity quantity, const char* part, const char* whole, LabelFilter filter = {});
  // Quantiles inside the first or above the last bucket cannot be known: a note.
  void quantiles(Quantity p50, Quantity p99, Names names);
  void add(Quantity quantity, double value, Trust trust, std::string_view name);
  void note(std::string text) { file.notes.push_back(std::move(text)); }

  std::optional<double> increase(std::string_view name, LabelFilter filter = {}) const {
    return series.counter(name, span_.lifetime, filter);
  }
  std::optional<MetricHistogram> histogram(std::string_view name, LabelFilter filter = {}) const {
    return series.histogram(name, span_.lifetime, filter);
  }
  const MetricsSpan& span() const { return span_; }
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }

  const MetricSeries& series;
  EvidenceFile& file;

 private:
  std::string counter_name(std::string_view name) const;  // as the page writes it

  const MetricsSpan span_;
  const std::string prefix_;
};

}  // namespace ridge
