#include "diagnose/readers/metric_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/seeded_hash.h"

namespace ridge {
namespace {

constexpr size_t kMostUnknownNames = 64;
constexpr size_t kLongestName = 120;
// Of fewer observations the 99th percentile is their maximum.
constexpr double kFewestForP99 = 100;
constexpr double kFewestForMedian = 5;

// Labels that tell apart processes which report the same numbers.
constexpr std::array<std::string_view, 4> kRankLabels{"tp_rank", "pp_rank", "moe_ep_rank",
                                                      "ep_rank"};
constexpr std::array<std::string_view, 5> kSuffixes{"_bucket", "_sum", "_count", "_created",
                                                    "_total"};

bool is_rank_label(std::string_view key) {
  return std::find(kRankLabels.begin(), kRankLabels.end(), key) != kRankLabels.end();
}

// Of all labels but the ranks, the same for every order.
uint64_t replica_hash(const MetricSample& sample, uint64_t& rank) {
  uint64_t sum = 0;
  rank = 0;
  for (const auto& [key, value] : sample.labels) {
    if (is_rank_label(key)) {
      unsigned number = 0;
      std::from_chars(value.data(), value.data() + value.size(), number);
      rank += number;
      continue;
    }
    sum += (seeded_hash(key) ^ (seeded_hash(value) * 0xbf58476d1ce4e5b9)) * 0x94d049bb133111eb;
  }
  return sum;
}

bool passes(const MetricSample& sample, const LabelFilter& filter) {
  return filter.first.empty() || sample.label(filter.first) == filter.second;
}

std::optional<double> bucket_end(const MetricSample& sample) {
  std::string_view text = sample.label("le");
  if (text.starts_with('+')) text.remove_prefix(1);
  double end = 0;
  const auto [read, error] = std::from_chars(text.data(), text.data() + text.size(), end);
  if (text.empty() || error != std::errc() || read != text.data() + text.size()) return {};
  return std::isnan(end) ? std::nullopt : std::optional(end);
}

// Of a counter; NaN where it is negative, which no counter is.
double series_increase(const MetricSeries::Series& series, size_t begin, bool lifetime) {
  if (series.points.empty()) return 0;
  const double last = series.points.back().value;
  const MetricSeries::Point& first = series.points.front();
  if (last < 0 || first.value < 0) return std::nan("");
  // A series that is not on the first page began at zero: engines create them when first used.
  if (lifetime || first.page > begin) return last;
  return last >= first.value ? last - first.value : last;
}

}  // namespace

void MetricSeries::add(std::string_view name, const MetricSample& sample, size_t page) {
  if (!std::isfinite(sample.value)) return;
  auto found = series_.find(name);
  if (found == series_.end()) {
    if (series_.size() == kMostNames) {
      throw Error("{}: more than {} names of metrics", sample.name.substr(0, kLongestName),
                  kMostNames);
    }
    found = series_.emplace(std::string(name), Group{}).first;
  }
  uint64_t rank = 0;
  const uint64_t hash = replica_hash(sample, rank);
  const auto [place, added] = found->second.try_emplace(hash, Series{&sample, rank, {}});
  Series& series = place->second;
  if (rank > series.rank) return;
  if (rank < series.rank) series = {&sample, rank, {}};
  if (!series.points.empty() && series.points.back().page == page) return;
  series.points.push_back({page, sample.value});
}

void MetricSeries::begin_at(size_t page) {
  begin_ = page;
  for (auto& [name, group] : series_) {
    for (auto& [hash, series] : group) {
      std::erase_if(series.points, [page](const Point& p) { return p.page < page; });
    }
  }
}

const MetricSeries::Group* MetricSeries::find(std::string_view name) const {
  const auto found = series_.find(name);
  return found == series_.end() ? nullptr : &found->second;
}
const MetricSeries::Group* MetricSeries::ask(std::string_view name) const {
  if (!asked_.contains(name)) asked_.emplace(name);
  return find(name);
}

bool MetricSeries::is_on(const Group& group, size_t page) const {
  return std::any_of(group.begin(), group.end(), [page](const auto& entry) {
    const std::vector<Point>& points = entry.second.points;
    return std::any_of(points.begin(), points.end(),
                       [page](const Point& point) { return point.page == page; });
  });
}
size_t MetricSeries::names_at(size_t page) const {
  return size_t(std::count_if(series_.begin(), series_.end(), [this, page](const auto& entry) {
    return is_on(entry.second, page);
  }));
}

size_t MetricSeries::count(std::string_view name) const {
  const Group* group = find(name);
  return group == nullptr ? 0 : group->size();
}

const MetricSample* MetricSeries::first(std::string_view name) const {
  const Group* group = ask(name);
  return group == nullptr || group->empty() ? nullptr : group->begin()->second.sample;
}

std::vector<const MetricSample*> MetricSeries::all(std::string_view name) const {
  std::vector<const MetricSample*> samples;
  if (const Group* group = ask(name)) {
    for (const auto& [hash, series] : *group) {
      if (!series.points.empty()) samples.push_back(series.sample);
    }
  }
  return samples;
}

std::string MetricSeries::common_label(std::string_view key, size_t& values) const {
  std::map<std::string_view, size_t> times;
  for_each([&](const std::string&, const Series& series) {
    const std::string_view value = series.sample->label(key);
    if (!value.empty()) ++times[value];
  });
  values = times.size();
  const auto most = std::max_element(
      times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == times.end() ? std::string() : std::string(most->first);
}

std::optional<double> MetricSeries::gauge(std::string_view name, GaugeFold fold,
                                          LabelFilter filter) const {
  const Group* group = ask(name);
  if (group == nullptr) return std::nullopt;
  std::map<size_t, std::pair<double, size_t>> pages;  // page -> sum, series
  for (const auto& [hash, series] : *group) {
    if (!passes(*series.sample, filter)) continue;
    for (const Point& point : series.points) {
      auto& [sum, number] = pages[point.page];
      sum += point.value;
      ++number;
    }
  }
  if (pages.empty()) return std::nullopt;
  double mean = 0;
  for (const auto& [page, cell] : pages) {
    mean += fold == GaugeFold::sum ? cell.first : cell.first / double(cell.second);
  }
  return mean / double(pages.size());
}

std::vector<MetricSeries::Point> MetricSeries::sums(std::string_view name) const {
  std::map<size_t, double> pages;
  if (const Group* group = ask(name)) {
    for (const auto& [hash, series] : *group) {
      for (const Point& point : series.points) pages[point.page] += point.value;
    }
  }
  std::vector<Point> points;
  for (const auto& [page, sum] : pages) points.push_back({page, sum});
  return points;
}

double MetricSeries::lowest(std::string_view name) const {
  const std::vector<Point> points = sums(name);
  double least = points.empty() ? 0 : points.front().value;
  for (const Point& point : points) least = std::min(least, point.value);
  return least;
}

std::optional<std::pair<double, double>> MetricSeries::spread(std::string_view name) const {
  const Group* group = ask(name);
  std::optional<std::pair<double, double>> range;
  if (group == nullptr) return range;
  for (const auto& [hash, series] : *group) {
    if (series.points.empty()) continue;
    double mean = 0;
    for (const Point& point : series.points) mean += point.value / double(series.points.size());
    if (!range) range = {mean, mean};
    range = {std::min(range->first, mean), std::max(range->second, mean)};
  }
  return range;
}

std::optional<double> MetricSeries::counter(std::string_view name, bool lifetime,
                                            LabelFilter filter) const {
  const Group* group = ask(name);
  if (const Group* with_suffix = find(std::string(name) + "_total")) group = with_suffix;
  if (group == nullptr || (need_first_page_ && !is_on(*group, begin_))) return std::nullopt;
  std::optional<double> sum;
  for (const auto& [hash, series] : *group) {
    if (!passes(*series.sample, filter) || series.points.empty()) continue;
    sum = sum.value_or(0) + series_increase(series, begin_, lifetime);
  }
  return sum;
}

std::optional<MetricHistogram> MetricSeries::histogram(std::string_view name, bool lifetime,
                                                       LabelFilter filter) const {
  ask(name);
  const std::string base(name);
  const Group* sums = find(base + "_sum");
  const Group* counts = find(base + "_count");
  if (sums == nullptr || counts == nullptr) return std::nullopt;
  if (need_first_page_ && !is_on(*counts, begin_)) return std::nullopt;
  MetricHistogram whole;
  const auto increase_of = [&](const Group& group) {
    double sum = 0;
    for (const auto& [hash, series] : group) {
      if (passes(*series.sample, filter)) sum += series_increase(series, begin_, lifetime);
    }
    return sum;
  };
  whole.sum = increase_of(*sums);
  whole.count = increase_of(*counts);
  const Group* buckets = find(base + "_bucket");
  if (buckets == nullptr) return whole;
  std::map<double, std::pair<double, size_t>> ends;  // upper end -> observations, series
  for (const auto& [hash, series] : *buckets) {
    const std::optional<double> end = bucket_end(*series.sample);
    if (!end || !passes(*series.sample, filter)) continue;
    auto& [observations, number] = ends[*end];
    observations += series_increase(series, begin_, lifetime);
    ++number;
  }
  // Engines of different versions have different buckets, whose counts do not add up.
  for (const auto& [end, cell] : ends) {
    if (cell.second != ends.begin()->second.second) return whole;
  }
  for (const auto& [end, cell] : ends) whole.buckets.emplace_back(end, cell.first);
  return whole;
}

std::vector<std::string> MetricSeries::unasked(const std::set<std::string_view>& ignored) const {
  std::set<std::string> names;
  for (const auto& [name, group] : series_) {
    std::string_view base = name;
    bool known = asked_.contains(base) || ignored.contains(base);
    bool stripped = true;
    while (!known && stripped) {
      stripped = false;
      for (const std::string_view suffix : kSuffixes) {
        if (!base.ends_with(suffix)) continue;
        base.remove_suffix(suffix.size());
        known = known || asked_.contains(base) || ignored.contains(base);
        stripped = true;
        break;
      }
    }
    if (!known) names.emplace(base.substr(0, kLongestName));
    if (names.size() == kMostUnknownNames) break;
  }
  return {names.begin(), names.end()};
}

void MetricsObserver::add(Quantity quantity, double value, Trust trust, std::string_view name) {
  const bool share = quantity_info(quantity).unit == QuantityUnit::share;
  if (!std::isfinite(value) || value < 0 || (share && value > 1.005)) {
    note(fmt::format("{}: {:.6g} cannot be a {}; left out", full_name(name), value,
                     quantity_info(quantity).name));
    return;
  }
  file.add(quantity, share ? std::min(value, 1.) : value, trust, full_name(name), span_.seconds);
}

std::string MetricsObserver::counter_name(std::string_view name) const {
  const std::string with_suffix = std::string(name) + "_total";
  return series.has(with_suffix) ? with_suffix : std::string(name);
}

bool MetricsObserver::gauge(Quantity quantity, Names names, GaugeFold fold, double scale,
                            LabelFilter filter) {
  bool observed = false;
  for (const char* name : names) {
    const auto value = series.gauge(name, fold, filter);
    if (observed || !value) continue;
    add(quantity, *value * scale, span_.gauges(), name);
    observed = true;
  }
  return observed;
}

bool MetricsObserver::total(Quantity quantity, Names names, LabelFilter filter) {
  bool observed = false;
  for (const char* name : names) {
    const auto value = increase(name, filter);
    if (observed || !value) continue;
    add(quantity, *value, span_.counters(), counter_name(name));
    observed = true;
  }
  return observed;
}

bool MetricsObserver::rate(Quantity quantity, Names names, LabelFilter filter) {
  bool observed = false;
  for (const char* name : names) {
    const auto value = increase(name, filter);
    if (observed || !value || span_.seconds <= 0) continue;
    add(quantity, *value / span_.seconds, span_.counters(), counter_name(name));
    observed = true;
  }
  return observed;
}

bool MetricsObserver::mean(Quantity quantity, Names names, LabelFilter filter, double scale) {
  bool observed = false;
  for (const char* name : names) {
    const auto found = histogram(name, filter);
    if (observed || !found || found->count <= 0) continue;
    add(quantity, found->sum / found->count * scale, span_.counters(), name);
    observed = true;
  }
  return observed;
}

bool MetricsObserver::ratio(Quantity quantity, const char* part, const char* whole,
                            LabelFilter filter) {
  const auto numerator = increase(part, filter);
  const auto denominator = increase(whole, filter);
  if (!numerator || !denominator || *denominator <= 0) return false;
  add(quantity, *numerator / *denominator, span_.counters(), counter_name(part));
  return true;
}

void MetricsObserver::quantiles(Quantity p50, Quantity p99, Names names) {
  for (const char* name : names) {
    const auto found = histogram(name);
    if (!found || found->count <= 0 || found->buckets.empty()) continue;
    const auto& buckets = found->buckets;
    const auto rises = [](const auto& a, const auto& b) { return a.second < b.second; };
    if (!std::is_sorted(buckets.begin(), buckets.end(), rises)) {
      note(fmt::format("{}: the buckets do not add up; no quantiles", full_name(name)));
      return;
    }
    for (const auto& [quantity, share, word, fewest] :
         {std::tuple{p50, 0.5, "median", kFewestForMedian},
          std::tuple{p99, 0.99, "99th percentile", kFewestForP99}}) {
      if (found->count < fewest) continue;
      const double wanted = share * found->count;
      const auto at = std::find_if(buckets.begin(), buckets.end(),
                                   [wanted](const auto& b) { return b.second >= wanted; });
      if (at == buckets.begin()) {
        note(fmt::format("{}: the {} is below {} s, the smallest bucket", full_name(name), word,
                         at->first));
      } else if (at == buckets.end() || std::isinf(at->first)) {
        note(fmt::format("{}: the {} is above {} s, the largest bucket", full_name(name), word,
                         at == buckets.end() ? buckets.back().first : (at - 1)->first));
      } else {
        const auto before = at - 1;
        const double inside = (wanted - before->second) / (at->second - before->second);
        double value = before->first + inside * (at->first - before->first);
        // Latencies are skewed to the right: where the mean lies lower in the same wide bucket, the
        // median is not above it.
        const double mean = found->sum / found->count;
        if (quantity == p50 && mean > before->first) value = std::min(value, mean);
        add(quantity, value, span_.counters(), name);
      }
    }
    return;
  }
}

}  // namespace ridge
