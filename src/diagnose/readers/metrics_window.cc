#include "diagnose/readers/metrics_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/engine_metrics.h"

namespace ridge {
namespace {

constexpr double kBusyCores = 0.8;  // of a server's process: Python runs on one core
// Files that are copied or unpacked together have modification times this close.
constexpr double kSameFileTime = 1;  // s
// Sequences that decode, over the highest number of running requests seen.
constexpr double kMostFlight = 5;
// A first snapshot with a smaller share of the last one's names is a part of a page.
constexpr double kWholePage = 0.7;

// A page whose names are looked up once.
struct NamedPage {
  const MetricsPage* page;
  std::vector<MetricsName> names;  // of the samples
  std::array<bool, size_t(MetricsFamily::count_)> families{};
};
using NamedPages = std::vector<const NamedPage*>;
using PageList = std::vector<const MetricsPage*>;
using TypeMap = std::map<std::string_view, std::string_view>;

// What all engines of a page share.
struct ProcessFacts {
  std::vector<std::optional<double>> start_s;  // for every page; Unix time
  std::optional<double> cpu_first, cpu_last;   // process_cpu_seconds_total
};

// One engine's pages.
struct EngineWindow {
  MetricsFamily family = MetricsFamily::none;
  NamedPages named;
  PageList pages;      // of the same
  std::string prefix;  // as written: "ray_vllm:"
  MetricSeries series;
};

bool is_counter(const std::string& name, std::string_view full_name, const TypeMap& types) {
  if (const auto found = types.find(full_name); found != types.end()) {
    if (found->second == "gauge") return false;
    if (found->second == "counter") return true;
  }
  return name.ends_with("_total") || name.ends_with("_count") || name.ends_with("_bucket");
}

TypeMap types_of(const PageList& pages) {
  TypeMap types;
  for (const MetricsPage* page : pages) {
    for (const auto& [name, type] : page->types) types.emplace(name, type);
  }
  return types;
}

// The rows of single priorities repeat those of the total, whose label is empty.
bool is_part_of_total(MetricsFamily family, std::string_view name, const MetricSample& sample) {
  return family == MetricsFamily::sglang && name.starts_with("num_") &&
         !sample.label("priority").empty();
}

EngineWindow collect(const NamedPages& pages, MetricsFamily family) {
  EngineWindow window;
  window.family = family;
  for (const NamedPage* named : pages) {
    if (!named->families[size_t(family)]) continue;
    for (size_t i = 0; i < named->names.size(); ++i) {
      const MetricsName& name = named->names[i];
      if (name.family != family) continue;
      const MetricSample& sample = named->page->samples[i];
      if (window.prefix.empty()) {
        window.prefix = sample.name.substr(0, sample.name.size() - name.rest.size());
      }
      if (!is_part_of_total(family, name.rest, sample)) {
        window.series.add(name.rest, sample, window.pages.size());
      }
    }
    window.named.push_back(named);
    window.pages.push_back(named->page);
  }
  return window;
}

ProcessFacts process_facts(const PageList& pages) {
  ProcessFacts facts;
  for (const MetricsPage* page : pages) {
    std::optional<double> start, created;
    for (const MetricSample& sample : page->samples) {
      if (!std::isfinite(sample.value) || sample.value <= 0) continue;
      if (sample.name == "process_start_time_seconds") {
        start = std::max(start.value_or(0), sample.value);
      } else if (sample.name == "process_cpu_seconds_total") {
        if (!facts.cpu_first) facts.cpu_first = sample.value;
        facts.cpu_last = sample.value;
      } else if (sample.name.ends_with("_created") && sample.value > 1e9) {
        created = std::min(created.value_or(sample.value), sample.value);
      }
    }
    facts.start_s.push_back(start ? start : created);
  }
  return facts;
}

// How the counters of consecutive pages move.
struct CounterMoves {
  size_t risen = 0, fallen = 0;
  size_t reset_page = 0;  // the last page at which one fell; 0: none
};

CounterMoves counter_moves(const EngineWindow& window) {
  CounterMoves moves;
  const TypeMap types = types_of(window.pages);
  window.series.for_each([&](const std::string& name, const MetricSeries::Series& series) {
    if (!is_counter(name, series.sample->name, types)) return;
    for (size_t i = 1; i < series.points.size(); ++i) {
      const double before = series.points[i - 1].value;
      const double after = series.points[i].value;
      if (after > before) ++moves.risen;
      if (after >= before * (1 - 1e-9)) continue;
      ++moves.fallen;
      moves.reset_page = std::max(moves.reset_page, series.points[i].page);
    }
  });
  return moves;
}

// Pages without times may come in the wrong order: then every counter falls and none rises.
bool is_reversed(const EngineWindow& window, const CounterMoves& moves) {
  const ProcessFacts facts = process_facts(window.pages);
  const bool timed = std::all_of(window.pages.begin(), window.pages.end(), [](const auto* page) {
    return page->time_s && !page->time_from_file;
  });
  const bool one_process = facts.start_s.front() == facts.start_s.back();
  return !timed && one_process && moves.fallen > 0 && moves.risen == 0;
}

std::string pages_path(const PageList& pages) {
  std::string path;
  const std::string* last = nullptr;
  for (const MetricsPage* page : pages) {
    if (last != nullptr && page->source == *last) continue;
    if (last != nullptr) path += ", ";
    path += page->source;
    last = &page->source;
  }
  return path;
}

// The time between the first page that is used and the last; 0: not known.
double seconds_between(const PageList& pages, size_t first, double given_s) {
  const MetricsPage& begin = *pages[first];
  const MetricsPage& last = *pages.back();
  if (given_s > 0) return given_s * double(pages.size() - 1 - first) / double(pages.size() - 1);
  if (!begin.time_s || !last.time_s || begin.time_from_file != last.time_from_file) return 0;
  const double seconds = *last.time_s - *begin.time_s;
  return seconds > (last.time_from_file ? kSameFileTime : 0) ? seconds : 0;
}

MetricsSpan window_span(const PageList& pages, size_t first, double given_s) {
  MetricsSpan span;
  span.pages = pages.size() - first;
  span.lifetime = span.pages < 2;
  if (!span.lifetime) {
    span.seconds = seconds_between(pages, first, given_s);
    return span;
  }
  const std::optional<double> start = process_facts(pages).start_s.back();
  const MetricsPage& last = *pages.back();
  // A file may have been copied long after the scrape: its time is no divisor of a rate.
  if (start && last.time_s && !last.time_from_file) {
    span.seconds = std::max(0., *last.time_s - *start);
  }
  return span;
}

std::string span_in_words(const PageList& pages, const MetricsSpan& span, bool given) {
  const MetricsPage& last = *pages.back();
  if (!span.lifetime) {
    if (span.seconds <= 0) return fmt::format("{} snapshots, an unknown time apart", span.pages);
    const bool from_files = last.time_from_file && !given;
    return fmt::format("{} between {} snapshots{}", pretty_time(span.seconds), span.pages,
                       from_files ? ", by the files' modification times" : "");
  }
  const std::optional<double> start = process_facts(pages).start_s.back();
  if (!start || !last.time_s || *last.time_s < *start) return "since the server's start";
  const std::string age = pretty_time(*last.time_s - *start);
  return last.time_from_file
             ? fmt::format("since the server's start, at most {} by the file's modification time",
                           age)
             : fmt::format("since the server's start, {}", age);
}

// Files that were copied have times that say nothing about the scrapes. Tokens in flight betray
// them: the sum of the token latencies over the time is the number of sequences that decode.
bool is_time_too_short(const MetricSeries& series, const MetricsSpan& span) {
  double running = 1;
  for (const char* name : {"num_requests_running", "num_running_reqs"}) {
    for (const MetricSeries::Point& point : series.sums(name)) {
      running = std::max(running, point.value);
    }
  }
  for (const char* name : {"inter_token_latency_seconds", "time_per_output_token_seconds"}) {
    const auto tokens = series.histogram(name, span.lifetime);
    if (tokens && tokens->sum > kMostFlight * running * span.seconds) return true;
  }
  return false;
}

void note_process(const PageList& pages, const MetricsSpan& span, EvidenceFile& file) {
  const ProcessFacts facts = process_facts(pages);
  if (span.lifetime || span.seconds <= 0 || !facts.cpu_first) return;
  const double cores = (*facts.cpu_last - *facts.cpu_first) / span.seconds;
  if (cores < kBusyCores) return;
  file.notes.push_back(fmt::format(
      "the server's process kept {:.2f} CPU cores busy (process_cpu_seconds_total)", cores));
}

// Ridge's own names, beside those that it shares with vLLM.
void observe_own_steps(const NamedPages& pages, size_t first, MetricsObserver& observe) {
  EngineWindow own = collect(pages, MetricsFamily::ridge);
  if (own.series.empty()) return;
  if (first > 0) own.series.begin_at(first);
  MetricsObserver steps(own.series, observe.span(), own.prefix, observe.file);
  observe_ridge_steps(steps);
}

void observe_names(const EngineWindow& window, size_t first, MetricsObserver& observe) {
  switch (window.family) {
    case MetricsFamily::vllm:
      observe_vllm(observe);
      observe_own_steps(window.named, first, observe);
      break;
    case MetricsFamily::ridge:
      observe_ridge_steps(observe);
      break;
    case MetricsFamily::sglang:
      observe_sglang(observe);
      break;
    case MetricsFamily::trtllm:
      observe_trtllm(observe);
      break;
    case MetricsFamily::triton:
      observe_triton(observe);
      break;
    case MetricsFamily::tgi:
      observe_tgi(observe);
      break;
    case MetricsFamily::llamacpp:
      observe_llamacpp(observe);
      break;
    case MetricsFamily::nim:
      observe_nim(observe);
      break;
    case MetricsFamily::dynamo:
      observe_dynamo(observe);
      break;
    default:
      break;
  }
}

EvidenceFile observe_engine(EngineWindow& window, double given_s) {
  EvidenceFile file;
  size_t first = 0;
  if (window.pages.size() > 1) {
    CounterMoves moves = counter_moves(window);
    if (is_reversed(window, moves)) {
      NamedPages pages = window.named;
      std::reverse(pages.begin(), pages.end());
      window = collect(pages, window.family);
      moves = counter_moves(window);
      file.notes.push_back("the snapshots were given newest first: their counters fall");
    }
    first = moves.reset_page;
    if (first > 0) {
      window.series.begin_at(first);
      file.notes.push_back(
          fmt::format("counters fell before snapshot {} of {}: the server was restarted; what "
                      "follows is used",
                      first + 1, window.pages.size()));
    }
  }
  file.path = pages_path(window.pages);
  MetricsSpan span = window_span(window.pages, first, given_s);
  if (!span.lifetime) {
    const double whole = kWholePage * double(window.series.names_at(window.pages.size() - 1));
    if (double(window.series.names_at(first)) < whole) {
      window.series.need_first_page();
      file.notes.push_back("the first snapshot lacks metrics of the last: they have no window");
    }
    const bool from_files = given_s <= 0 && window.pages.back()->time_from_file;
    if (from_files && is_time_too_short(window.series, span)) span.seconds = 0;
    if (span.seconds <= 0) {
      file.notes.push_back(
          "the time between the snapshots is not known: no rates; --window gives it");
    }
  }
  file.window = span_in_words(window.pages, span, given_s > 0);
  MetricsObserver observe(window.series, span, window.prefix, file);
  observe_names(window, first, observe);
  note_process(PageList(window.pages.begin() + long(first), window.pages.end()), span, file);
  return file;
}

NamedPage named_page(const MetricsPage& page) {
  NamedPage named{&page, {}};
  named.names.reserve(page.samples.size());
  for (const MetricSample& sample : page.samples) {
    named.names.push_back(metrics_name(sample.name));
    named.families[size_t(named.names.back().family)] = true;
  }
  return named;
}

EvidenceFile observe_devices(const PageList& pages, double given_s) {
  const MetricsSpan span = window_span(pages, 0, given_s);
  EvidenceFile file = observe_dcgm(pages, span);
  file.path = pages_path(pages);
  file.window = span.lifetime ? "one snapshot" : span_in_words(pages, span, given_s > 0);
  return file;
}

void observe_family(const NamedPages& pages, MetricsFamily family, double given_s,
                    std::vector<EvidenceFile>& files) {
  EngineWindow window = collect(pages, family);
  if (window.series.empty()) return;
  // Names without a prefix may be anybody's.
  if (family == MetricsFamily::nim && !window.series.has("num_requests_running") &&
      !window.series.has("time_to_first_token_seconds_count")) {
    return;
  }
  files.push_back(family == MetricsFamily::dcgm ? observe_devices(window.pages, given_s)
                                                : observe_engine(window, given_s));
}

}  // namespace

std::vector<EvidenceFile> observe_metrics(std::span<const MetricsPage> pages, double window_s) {
  std::vector<NamedPage> named;
  for (const MetricsPage& page : pages) named.push_back(named_page(page));
  const auto time_of = [](const NamedPage& n) { return n.page->time_s; };
  if (std::all_of(named.begin(), named.end(), time_of)) {
    std::stable_sort(named.begin(), named.end(), [&](const NamedPage& a, const NamedPage& b) {
      return *time_of(a) < *time_of(b);
    });
  }
  // A page that has Ridge's names is Ridge's, with its vLLM names.
  NamedPages all, ridges, others;
  for (const NamedPage& page : named) {
    all.push_back(&page);
    (page.families[size_t(MetricsFamily::ridge)] ? ridges : others).push_back(&page);
  }
  std::vector<EvidenceFile> files;
  observe_family(ridges, MetricsFamily::vllm, window_s, files);
  if (files.empty()) observe_family(ridges, MetricsFamily::ridge, window_s, files);
  for (const MetricsFamily family :
       {MetricsFamily::vllm, MetricsFamily::sglang, MetricsFamily::trtllm, MetricsFamily::triton,
        MetricsFamily::tgi, MetricsFamily::llamacpp}) {
    observe_family(others, family, window_s, files);
  }
  if (files.empty()) observe_family(all, MetricsFamily::nim, window_s, files);
  if (files.empty()) observe_family(all, MetricsFamily::dynamo, window_s, files);
  observe_family(all, MetricsFamily::dcgm, window_s, files);
  if (files.empty()) {
    throw Error("{}: no metric of an inference engine or of dcgm-exporter",
                pages.empty() ? "metrics" : pages.front().source);
  }
  for (const NamedPage& page : named) {
    files.front().notes.insert(files.front().notes.end(), page.page->notes.begin(),
                               page.page->notes.end());
  }
  return files;
}

}  // namespace ridge
