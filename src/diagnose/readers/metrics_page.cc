// Prometheus and OpenMetrics text: `name{label="value",...} value [timestamp] [# exemplar]`.
#include "diagnose/readers/metrics_page.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "base/seeded_hash.h"
#include "load/trace_fields.h"

namespace ridge {
namespace {

constexpr size_t kMostPageNotes = 5;  // lines of one page that are named; the rest is counted
constexpr size_t kMostLabels = 256;   // of one sample; engines use fewer than 30
constexpr size_t kHeadLines = 60;     // that decide whether a text is a page
constexpr double kFirstMilliseconds =
    1e11;  // Unix times above are in milliseconds: 1e11 s is year 5138

bool is_metric_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}
bool is_metric_char(char c) { return is_metric_start(c) || (c >= '0' && c <= '9') || c == '.'; }

void skip_page_blanks(std::string_view& text) {
  size_t i = 0;
  while (i < text.size() && (text[i] == ' ' || text[i] == '\t')) ++i;
  text.remove_prefix(i);
}

std::string_view take_metric_name(std::string_view& text) {
  size_t i = 0;
  if (!text.empty() && is_metric_start(text[0])) {
    while (i < text.size() && is_metric_char(text[i])) ++i;
  }
  const std::string_view name = text.substr(0, i);
  text.remove_prefix(i);
  return name;
}

std::string_view take_page_word(std::string_view& text) {
  skip_page_blanks(text);
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

// "1.5e3", "+Inf", "NaN".
std::optional<double> prometheus_number(std::string_view word) {
  if (word.starts_with('+')) word.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// A quoted value; \\, \" and \n are escapes.
bool take_quoted_label(std::string_view& text, std::string& value) {
  if (!text.starts_with('"')) return false;
  size_t i = 1;
  size_t copied = 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) continue;
    value.append(text.substr(copied, i - copied));
    ++i;
    if (text[i] == 'n') {
      value += '\n';
      copied = i + 1;
    } else {
      if (text[i] != '\\' && text[i] != '"') value += '\\';
      copied = i;
    }
  }
  if (i >= text.size()) return false;
  value.append(text.substr(copied, i - copied));
  text.remove_prefix(i + 1);
  return true;
}

bool take_metric_labels(std::string_view& text, MetricSample& sample) {
  text.remove_prefix(1);  // '{'
  for (;;) {
    skip_page_blanks(text);
    if (text.starts_with('}')) break;
    if (sample.labels.size() == kMostLabels) return false;
    auto& [key, value] = sample.labels.emplace_back();
    if (text.starts_with('"')) {  // UTF-8 names may be quoted
      if (!take_quoted_label(text, key)) return false;
    } else {
      key = take_metric_name(text);
    }
    if (key.empty()) return false;
    skip_page_blanks(text);
    if (sample.name.empty() && !text.starts_with('=')) {  // {"name",label="value"}
      sample.name = std::move(key);
      sample.labels.pop_back();
    } else {
      if (!text.starts_with('=')) return false;
      text.remove_prefix(1);
      skip_page_blanks(text);
      if (!take_quoted_label(text, value)) return false;
      skip_page_blanks(text);
    }
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  text.remove_prefix(1);
  return true;
}

// False where the line is no sample. `time_s` is set where the line has a timestamp.
bool parse_sample_line(std::string_view line, MetricSample& sample, std::optional<double>& time_s) {
  sample.name = take_metric_name(line);
  skip_page_blanks(line);
  if (line.starts_with('{') && !take_metric_labels(line, sample)) return false;
  if (sample.name.empty()) return false;
  const std::optional<double> value = prometheus_number(take_page_word(line));
  if (!value) return false;
  sample.value = *value;
  const std::string_view word = take_page_word(line);
  if (word.empty() || word.starts_with('#')) return true;
  const std::optional<double> stamp = prometheus_number(word);
  if (!stamp || !std::isfinite(*stamp)) return false;
  const std::string_view after = take_page_word(line);
  if (!after.empty() && !after.starts_with('#')) return false;
  // Prometheus writes milliseconds, OpenMetrics seconds.
  time_s = std::abs(*stamp) > kFirstMilliseconds ? *stamp / 1e3 : *stamp;
  return true;
}

// "Content-Type: text/plain": a header of the answer, as `curl -i` saves it.
bool is_http_header(std::string_view line) {
  if (line.starts_with("HTTP/")) return true;
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos || colon == 0 || colon > 64) return false;
  return std::all_of(line.begin(), line.begin() + long(colon), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string_view next_page_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  skip_page_blanks(line);
  return line;
}

// The same for every order of the labels.
uint64_t series_hash(const MetricSample& sample) {
  uint64_t sum = seeded_hash(sample.name) * 0x9e3779b97f4a7c15;
  for (const auto& [key, value] : sample.labels) {
    sum += (seeded_hash(key) ^ (seeded_hash(value) * 0xbf58476d1ce4e5b9)) * 0x94d049bb133111eb;
  }
  return sum;
}

// "Mon, 16 Nov 2026 10:17:46 GMT" of an HTTP header, "Mon Nov 16 10:17:46 UTC 2026" of date(1).
// The zone is not read: pages of one run share it.
std::optional<double> parse_worded_date(std::string_view text) {
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  std::string_view year, day, time;
  size_t month = 12;
  while (!text.empty()) {
    const std::string_view word = take_page_word(text);
    const bool digits = !word.empty() && word.find_first_not_of("0123456789") == word.npos;
    if (digits && word.size() == 4) year = word;
    if (digits && word.size() <= 2) day = word;
    if (word.size() == 8 && word[2] == ':' && word[5] == ':') time = word;
    const size_t at = word.size() == 3 ? kMonths.find(word) : kMonths.npos;
    if (at != kMonths.npos && at % 3 == 0) month = at / 3;
  }
  if (year.empty() || day.empty() || time.empty() || month >= 12) return std::nullopt;
  return parse_date(
      fmt::format("{}-{:02}-{}{} {}", year, month + 1, day.size() < 2 ? "0" : "", day, time));
}

// A line or comment that says when the next page was taken: a Unix time or a date.
std::optional<double> parse_time_line(std::string_view line) {
  while (!line.empty() && line.find_last_of(" #=-\t") == line.size() - 1) line.remove_suffix(1);
  while (!line.empty() && line.find_first_of(" #=-\t") == 0) line.remove_prefix(1);
  if (const std::optional<double> number = prometheus_number(line)) {
    const double seconds = *number > kFirstMilliseconds ? *number / 1e3 : *number;
    return seconds >= 1e9 && seconds < kFirstMilliseconds ? std::optional(seconds) : std::nullopt;
  }
  if (line.size() > 64) return std::nullopt;
  if (const std::optional<double> date = parse_date(line)) return date;
  return parse_worded_date(line);
}

// Splits the samples of a text into pages.
class PageBuilder {
 public:
  explicit PageBuilder(const std::string& source) : source_(source) { begin(true); }

  void add(MetricSample sample, std::optional<double> time_s) {
    const uint64_t hash = series_hash(sample);
    if (!series_.insert(hash).second) {
      begin(false);
      series_.insert(hash);
    }
    if (before_.contains(hash)) ++repeated_;
    if (time_s) page().time_s = std::max(page().time_s.value_or(*time_s), *time_s);
    page().samples.push_back(std::move(sample));
  }
  // The declaration of a metric precedes its samples: one that occurs again begins a page.
  void add_type(std::string_view name, std::string_view type) {
    const uint64_t hash = seeded_hash(name);
    if (types_.contains(hash)) begin(false);
    types_.insert(hash);
    page().types.emplace_back(name, type);
  }
  // A time between samples is that of the page which follows it.
  void set_time(double time_s) {
    begin(true);
    page().time_s = time_s;
  }
  void note(std::string text) {
    if (++notes_ <= kMostPageNotes) page().notes.push_back(std::move(text));
  }
  // `marked`: the text says that a scrape begins here.
  void begin(bool marked) {
    if (!pages_.empty() && page().samples.empty()) {
      marked_ = marked_ || marked;
      return;
    }
    end_page();
    if (pages_.size() == kMostPages) throw Error("{}: more than {} scrapes", source_, kMostPages);
    pages_.emplace_back().source = source_;
    before_ = std::move(series_);
    series_.clear();
    types_.clear();
    repeated_ = 0;
    marked_ = marked;
  }
  std::vector<MetricsPage> finish() {
    if (notes_ > kMostPageNotes) {
      page().notes.push_back(
          fmt::format("{}: {} more lines are no samples", source_, notes_ - kMostPageNotes));
    }
    end_page();
    if (page().samples.empty() && pages_.size() > 1) {
      std::vector<std::string> notes = std::move(page().notes);
      pages_.pop_back();
      std::move(notes.begin(), notes.end(), std::back_inserter(page().notes));
    }
    return std::move(pages_);
  }

 private:
  MetricsPage& page() { return pages_.back(); }

  // A page that repeats little of the one before is not a new scrape: some series occurs twice.
  void end_page() {
    if (pages_.size() < 2 || marked_ || 2 * repeated_ >= page().samples.size()) return;
    MetricsPage tail = std::move(pages_.back());
    pages_.pop_back();
    if (repeated_ > 0) {
      page().notes.push_back(fmt::format("{}: {} series occur twice on one page; the first counts",
                                         source_, repeated_));
    }
    std::move(tail.notes.begin(), tail.notes.end(), std::back_inserter(page().notes));
    std::move(tail.types.begin(), tail.types.end(), std::back_inserter(page().types));
    for (MetricSample& sample : tail.samples) {
      if (before_.insert(series_hash(sample)).second) page().samples.push_back(std::move(sample));
    }
    series_ = std::move(before_);
  }

  const std::string source_;
  std::vector<MetricsPage> pages_;
  std::unordered_set<uint64_t> series_, before_, types_;  // of this page; before_ of the last one
  size_t repeated_ = 0;                                   // series of this page in before_
  size_t notes_ = 0;
  bool marked_ = false;
};

// "# TYPE name type", "# EOF", "# 2026-11-16T10:17:46Z".
void read_page_comment(std::string_view line, PageBuilder& pages) {
  std::string_view rest = line.substr(1);
  const std::string_view word = take_page_word(rest);
  if (word == "TYPE") {
    const std::string_view name = take_page_word(rest);
    const std::string_view type = take_page_word(rest);
    if (!name.empty() && !type.empty()) pages.add_type(name, type);
  } else if (word == "EOF") {
    pages.begin(true);
  } else if (word != "HELP" && word != "UNIT") {
    if (const std::optional<double> time_s = parse_time_line(line)) pages.set_time(*time_s);
  }
}

}  // namespace

std::string_view MetricSample::label(std::string_view key) const {
  for (const auto& [known, text] : labels) {
    if (known == key) return text;
  }
  return {};
}

bool is_prometheus_text(std::string_view head) {
  size_t samples = 0;
  size_t others = 0;
  for (size_t i = 0; i < kHeadLines && !head.empty(); ++i) {
    const bool whole = i == 0 || head.find('\n') != head.npos;
    const std::string_view line = next_page_line(head);
    if (line.starts_with("# TYPE ") || line.starts_with("# HELP ")) return true;
    if (!whole || line.empty() || line.starts_with('#')) continue;
    MetricSample sample;
    std::optional<double> time_s;
    if (parse_sample_line(line, sample, time_s)) {
      // "word 12" may be any text.
      if (!sample.labels.empty() || sample.name.find_first_of("_:") != std::string::npos) ++samples;
    } else if (!is_http_header(line) && !parse_time_line(line)) {
      ++others;
    }
  }
  return samples > others;
}

std::vector<MetricsPage> parse_metrics(std::string_view text, const std::string& source) {
  PageBuilder pages(source);
  size_t samples = 0;
  bool in_headers = false;
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const bool cut = text.find('\n') == text.npos;
    const std::string_view line = next_page_line(text);
    if (line.starts_with("HTTP/")) {
      pages.begin(true);
      in_headers = true;
    }
    in_headers = in_headers && is_http_header(line);
    if (in_headers) {
      const std::optional<double> date = line.starts_with("Date: ") || line.starts_with("date: ")
                                             ? parse_worded_date(line.substr(6))
                                             : std::nullopt;
      if (date) pages.set_time(*date);
      continue;
    }
    if (line.empty()) continue;
    if (line.starts_with('#')) {
      read_page_comment(line, pages);
      continue;
    }
    MetricSample sample;
    std::optional<double> time_s;
    if (parse_sample_line(line, sample, time_s)) {
      pages.add(std::move(sample), time_s);
      ++samples;
    } else if (const std::optional<double> time = parse_time_line(line)) {
      pages.set_time(*time);
    } else {
      pages.note(fmt::format("{}: line {}: {}", source, line_number,
                             cut ? "the text is cut off" : "not a sample"));
    }
  }
  if (samples == 0) throw Error("{}: no line is a sample of Prometheus text", source);
  return pages.finish();
}

}  // namespace ridge
