// Logs with a row for each request, and time series with a row for each second.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/percentiles.h"
#include "base/units.h"
#include "diagnose/readers/json_records.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/request_timeline.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

using nlohmann::json;
using Q = Quantity;

// Lower case, letters and digits alone: "First_Token_TS" -> "firsttokents".
std::string folded_name(std::string_view name) {
  std::string folded;
  for (const char c : name.substr(0, 64)) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0) folded += static_cast<char>(std::tolower(u));
  }
  return folded;
}

enum class LogColumn : uint8_t {
  none,
  arrival,
  queued,
  scheduled,
  first,
  last,
  ttft,
  e2e,
  prompt,
  output
};

struct LogColumnName {
  std::string_view name;
  LogColumn column;
  double scale = 1;
};

constexpr LogColumnName kRequestColumns[] = {
    {"arrivaltime", LogColumn::arrival},
    {"arrival", LogColumn::arrival},
    {"arrivedat", LogColumn::arrival},
    {"arrivalts", LogColumn::arrival},
    {"starttime", LogColumn::arrival},
    {"start", LogColumn::arrival},
    {"requeststartns", LogColumn::arrival, 1e-9},
    {"arrivalms", LogColumn::arrival, 1e-3},
    {"queuedts", LogColumn::queued},
    {"queuedtime", LogColumn::queued},
    {"scheduledts", LogColumn::scheduled},
    {"scheduledtime", LogColumn::scheduled},
    {"firstscheduledtime", LogColumn::scheduled},
    {"firsttokents", LogColumn::first},
    {"firsttokentime", LogColumn::first},
    {"firsttoken", LogColumn::first},
    {"lasttokents", LogColumn::last},
    {"lasttokentime", LogColumn::last},
    {"lasttoken", LogColumn::last},
    {"finishedtime", LogColumn::last},
    {"finishtime", LogColumn::last},
    {"endtime", LogColumn::last},
    {"requestendns", LogColumn::last, 1e-9},
    {"ttft", LogColumn::ttft},
    {"ttfts", LogColumn::ttft},
    {"ttftms", LogColumn::ttft, 1e-3},
    {"timetofirsttoken", LogColumn::ttft},
    {"e2e", LogColumn::e2e},
    {"latency", LogColumn::e2e},
    {"latencys", LogColumn::e2e},
    {"e2elatency", LogColumn::e2e},
    {"e2es", LogColumn::e2e},
    {"e2ems", LogColumn::e2e, 1e-3},
    {"latencyms", LogColumn::e2e, 1e-3},
    {"requestlatency", LogColumn::e2e},
    {"inputtoks", LogColumn::prompt},
    {"inputtokens", LogColumn::prompt},
    {"prompttokens", LogColumn::prompt},
    {"promptlen", LogColumn::prompt},
    {"inputlen", LogColumn::prompt},
    {"inputlength", LogColumn::prompt},
    {"inputsequencelength", LogColumn::prompt},
    {"numprompttokens", LogColumn::prompt},
    {"outputtoks", LogColumn::output},
    {"outputtokens", LogColumn::output},
    {"completiontokens", LogColumn::output},
    {"outputlen", LogColumn::output},
    {"outputlength", LogColumn::output},
    {"outputsequencelength", LogColumn::output},
    {"numgeneratedtokens", LogColumn::output},
    {"numoutputtokens", LogColumn::output},
};

const LogColumnName* request_column(std::string_view name) {
  const std::string folded = folded_name(name);
  for (const LogColumnName& known : kRequestColumns) {
    if (folded == known.name) return &known;
  }
  return nullptr;
}

void set_request_value(LoggedRequest& request, const LogColumnName& column, double value) {
  value *= column.scale;
  switch (column.column) {
    case LogColumn::arrival:
      request.arrival = value;
      break;
    case LogColumn::queued:
      request.queued = value;
      break;
    case LogColumn::scheduled:
      request.scheduled = value;
      break;
    case LogColumn::first:
      request.first = value;
      break;
    case LogColumn::last:
      request.last = value;
      break;
    case LogColumn::ttft:
      request.ttft = value;
      break;
    case LogColumn::e2e:
      request.e2e = value;
      break;
    case LogColumn::prompt:
      request.prompt = value;
      break;
    case LogColumn::output:
      request.output = value;
      break;
    case LogColumn::none:
      break;
  }
}

// One line of JSON: numbers under known names; AIPerf's stand in "metadata" and, with their unit,
// in "metrics".
LoggedRequest request_of_json(const json& object) {
  LoggedRequest request;
  const auto read = [&](const json& fields) {
    for (const auto& [key, value] : fields.items()) {
      const LogColumnName* column = request_column(key);
      if (column == nullptr) continue;
      if (value.is_number()) set_request_value(request, *column, value.get<double>());
      const auto metric = value.is_object() ? json_number(value, "value") : std::nullopt;
      if (metric) {
        const double scale = json_text(value, "unit") == "ms" ? 1e-3 : 1;
        set_request_value(request, *column, *metric * scale);
      }
    }
  };
  read(object);
  for (const char* part : {"metadata", "metrics"}) {
    if (const json* fields = json_at(object, {part}); fields && fields->is_object()) read(*fields);
  }
  const json* error = json_at(object, {"error"});
  request.failed =
      error != nullptr && !(error->is_string() && error->get_ref<const std::string&>().empty());
  return request;
}

// Which column of a time series a name is.
std::optional<Q> series_quantity(std::string_view name) {
  constexpr std::pair<std::string_view, Q> kSeries[] = {
      {"promptthroughput", Q::prompt_tokens_per_s},
      {"avgpromptthroughput", Q::prompt_tokens_per_s},
      {"prompttokenspers", Q::prompt_tokens_per_s},
      {"genthroughput", Q::tokens_per_s},
      {"generationthroughput", Q::tokens_per_s},
      {"avggenerationthroughput", Q::tokens_per_s},
      {"outputthroughput", Q::tokens_per_s},
      {"tokenspers", Q::tokens_per_s},
      {"running", Q::running},
      {"numrunning", Q::running},
      {"runningreqs", Q::running},
      {"numrunningreqs", Q::running},
      {"numrequestsrunning", Q::running},
      {"waiting", Q::waiting},
      {"numwaiting", Q::waiting},
      {"waitingreqs", Q::waiting},
      {"queue", Q::waiting},
      {"numqueuereqs", Q::waiting},
      {"numrequestswaiting", Q::waiting},
      {"kvcachepct", Q::kv_usage},
      {"kvcacheusage", Q::kv_usage},
      {"kvcacheusageperc", Q::kv_usage},
      {"gpucacheusageperc", Q::kv_usage},
      {"kvusage", Q::kv_usage},
      {"tokenusage", Q::kv_usage},
  };
  const std::string folded = folded_name(name);
  for (const auto& [known, quantity] : kSeries) {
    if (folded == known) return quantity;
  }
  return std::nullopt;
}

bool is_time_column(std::string_view name) {
  const std::string folded = folded_name(name);
  return folded == "t" || folded == "time" || folded == "timestamp" || folded == "elapsed" ||
         folded == "elapseds" || folded == "times" || folded == "seconds";
}

struct SeriesTable {
  std::vector<std::optional<double>> time;
  std::vector<std::pair<Q, std::vector<double>>> columns;  // NaN where a field is no number
  std::vector<std::string> names;

  const std::vector<double>* find(Q q) const {
    for (const auto& [quantity, values] : columns) {
      if (quantity == q) return &values;
    }
    return nullptr;
  }
};

SeriesTable parse_series(std::string_view text, const std::vector<std::string>& header) {
  SeriesTable table;
  std::vector<size_t> positions;
  size_t time = header.size();
  for (size_t i = 0; i < header.size(); ++i) {
    const auto quantity = series_quantity(header[i]);
    if (quantity && table.find(*quantity) == nullptr) {
      table.columns.push_back({*quantity, {}});
      table.names.push_back(header[i]);
      positions.push_back(i);
    } else if (is_time_column(header[i]) && time == header.size()) {
      time = i;
    }
  }
  bool first = true;
  for_text_lines(text, [&](std::string_view line, size_t) {
    if (std::exchange(first, false)) return;
    const std::vector<std::string> fields = split_csv(line);
    table.time.push_back(time < fields.size() ? leading_number(fields[time]) : std::nullopt);
    for (size_t c = 0; c < positions.size(); ++c) {
      const auto value =
          positions[c] < fields.size() ? leading_number(fields[positions[c]]) : std::nullopt;
      table.columns[c].second.push_back(value.value_or(std::nan("")));
    }
  });
  return table;
}

std::optional<EvidenceFile> read_series(std::string_view text, const std::string& name,
                                        const std::vector<std::string>& header) {
  size_t known = 0;
  bool running_column = false;
  for (const std::string& column : header) {
    const auto quantity = series_quantity(column);
    known += quantity ? 1 : 0;
    running_column = running_column || quantity == Q::running;
  }
  if (known < 2 || !running_column) return std::nullopt;
  const SeriesTable table = parse_series(text, header);
  const std::vector<double>& running = *table.find(Q::running);
  double peak = 0;
  for (const double value : running) peak = std::max(peak, std::isnan(value) ? 0 : value);
  if (!(peak > 0)) throw Error("{}: no row of the time series has running requests", name);
  // The steady part: at least half of the most requests run.
  const auto steady = [&](double value) { return value >= 0.5 * peak; };
  const size_t begin =
      static_cast<size_t>(std::find_if(running.begin(), running.end(), steady) - running.begin());
  const size_t end =
      running.size() - static_cast<size_t>(std::find_if(running.rbegin(), running.rend(), steady) -
                                           running.rbegin());
  EvidenceFile file;
  file.path = name;
  file.kind = "time series of an engine";
  double window = 0;
  if (table.time[begin] && table.time[end - 1]) window = *table.time[end - 1] - *table.time[begin];
  window = std::max(window, 0.);
  file.window =
      fmt::format("{} rows of {}, without warm-up and drain", end - begin, running.size());
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const auto& [quantity, values] = table.columns[c];
    double sum = 0, count = 0, largest = 0;
    for (size_t i = begin; i < end; ++i) {
      if (std::isnan(values[i]) || values[i] < 0) continue;
      sum += values[i];
      largest = std::max(largest, values[i]);
      ++count;
    }
    if (count == 0) {
      file.notes.push_back(fmt::format("column {} has no number", table.names[c]));
      continue;
    }
    // A share of the cache may be in percent.
    const double scale = quantity == Q::kv_usage && largest > 1.5 ? 0.01 : 1;
    file.add(quantity, sum / count * scale, Trust::window, table.names[c], window);
  }
  file.notes.push_back(fmt::format(
      "rows {} to {} are used: at least {:g} requests run there; {} rows of warm-up and {} of "
      "drain are left out",
      begin + 1, end, std::ceil(0.5 * peak), begin, running.size() - end));
  return file;
}

std::optional<EvidenceFile> read_requests_json(std::string_view text, const std::string& name) {
  // Two of the names, before anything is parsed.
  const std::string_view head = text.substr(0, 1 << 16);
  const auto has = [&](const char* word) { return head.find(word) != head.npos; };
  if (!has("token") && !has("ttft") && !has("latency")) return std::nullopt;
  RequestTimeline requests;
  std::vector<std::string> notes;
  for_json_records(
      text, [&](const json& object, size_t) { requests.add(request_of_json(object)); }, notes);
  if (requests.timed() == 0) return std::nullopt;
  EvidenceFile file = requests.finish(name);
  file.notes.insert(file.notes.end(), notes.begin(), notes.end());
  return file;
}

std::optional<EvidenceFile> read_requests_csv(std::string_view text, const std::string& name,
                                              const std::vector<std::string>& header) {
  std::vector<const LogColumnName*> columns;
  for (const std::string& column : header) columns.push_back(request_column(column));
  const auto has = [&](LogColumn wanted) {
    return std::any_of(columns.begin(), columns.end(),
                       [&](const LogColumnName* c) { return c != nullptr && c->column == wanted; });
  };
  if (!has(LogColumn::output) || !(has(LogColumn::first) || has(LogColumn::last) ||
                                   has(LogColumn::ttft) || has(LogColumn::e2e))) {
    return std::nullopt;
  }
  RequestTimeline requests;
  size_t bad = 0;
  bool first = true;
  for_text_lines(text, [&](std::string_view line, size_t) {
    if (std::exchange(first, false)) return;
    const std::vector<std::string> fields = split_csv(line);
    LoggedRequest request;
    for (size_t i = 0; i < std::min(fields.size(), columns.size()); ++i) {
      const auto value = leading_number(fields[i]);
      if (columns[i] != nullptr && value) set_request_value(request, *columns[i], *value);
    }
    requests.add(request);
    bad += request.timed() ? 0 : 1;
  });
  if (requests.timed() == 0)
    throw Error("{}: a log of requests without a row that has its times", name);
  EvidenceFile file = requests.finish(name);
  if (bad > 0) file.notes.push_back(fmt::format("{} rows without times are left out", bad));
  return file;
}

}  // namespace

std::optional<EvidenceFile> read_request_log(std::string_view text, const std::string& name) {
  if (begins_json(text)) return read_requests_json(text, name);
  std::string_view head = text.substr(0, text.find('\n'));
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  if (head.size() > 4096 || head.find(',') == head.npos) return std::nullopt;
  const std::vector<std::string> header =
      split_csv(head.ends_with('\r') ? head.substr(0, head.size() - 1) : head);
  if (auto series = read_series(text, name, header)) return series;
  return read_requests_csv(text, name, header);
}

}  // namespace ridge
