#include "diagnose/readers/engine_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/error.h"
#include "diagnose/readers/json_records.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

constexpr size_t kMaxLogLine = 1 << 16;  // an engine's configuration is the longest

// Without ANSI colours: ESC [ numbers letter.
void strip_colours(std::string_view line, std::string& plain) {
  plain.clear();
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain += line[i];
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') ++i;
    while (i + 1 < line.size() && std::isalpha(static_cast<unsigned char>(line[i + 1])) == 0) ++i;
    ++i;
  }
}

bool two_digits(std::string_view text, size_t at) {
  return std::isdigit(static_cast<unsigned char>(text[at])) != 0 &&
         std::isdigit(static_cast<unsigned char>(text[at + 1])) != 0;
}

}  // namespace

std::optional<double> number_after(std::string_view line, std::string_view mark) {
  const size_t at = line.find(mark);
  if (at == line.npos) return std::nullopt;
  // A comma between digits groups thousands; one before a space ends the number.
  std::string_view rest = line.substr(at + mark.size(), 48);
  const size_t end = rest.find(", ");
  return leading_number(rest.substr(0, end));
}

std::optional<double> duration_after(std::string_view line, std::string_view mark) {
  const std::optional<double> number = number_after(line, mark);
  if (!number) return std::nullopt;
  std::string_view rest = line.substr(line.find(mark) + mark.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" 0123456789.,"), rest.size()));
  if (rest.starts_with("ms")) return *number * 1e-3;
  if (rest.starts_with("ns")) return *number * 1e-9;
  if (rest.starts_with("us") || rest.starts_with("\xc2\xb5s")) return *number * 1e-6;
  if (rest.starts_with("s")) return *number;
  return std::nullopt;
}

void LogFigure::add(const std::optional<double>& value) {
  if (value && *value >= 0) values_.push_back(*value);
}

double LogFigure::sum() const { return std::accumulate(values_.begin(), values_.end(), 0.); }

double LogFigure::mean() const { return sum() / double(values_.size()); }

double LogFigure::median() const {
  std::vector<double> sorted = values_;
  const auto middle = sorted.begin() + long(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double LogFigure::lowest() const { return *std::min_element(values_.begin(), values_.end()); }
double LogFigure::highest() const { return *std::max_element(values_.begin(), values_.end()); }

void LogClock::see(std::string_view line) {
  const std::string_view head = line.substr(0, 80);
  for (size_t i = 0; i + 8 <= head.size(); ++i) {
    if (head[i + 2] != ':' || head[i + 5] != ':' || !two_digits(head, i) ||
        !two_digits(head, i + 3) || !two_digits(head, i + 6)) {
      continue;
    }
    const auto number = [&](size_t at) { return 10. * (head[at] - '0') + (head[at + 1] - '0'); };
    const double seconds = 3600 * number(i) + 60 * number(i + 3) + number(i + 6);
    if (!first_) first_ = seconds;
    last_ = seconds;
    return;
  }
}

double LogClock::span_s() const {
  if (!first_ || !last_) return 0;
  return *last_ >= *first_ ? *last_ - *first_ : *last_ - *first_ + 86400;
}

void add_log_arguments(const EngineArguments& arguments, EvidenceFile& file) {
  apply_engine_arguments(
      arguments, file.setup, [&](Quantity q, double value, std::string_view origin) {
        const bool known = std::any_of(file.observed.begin(), file.observed.end(),
                                       [&](const Observed& o) { return o.quantity == q; });
        if (!known) file.add(q, value, Trust::window, std::string(origin));
      });
}

std::optional<EvidenceFile> read_engine_log(std::string_view text, const std::string& name) {
  if (auto settings = read_run_settings(text, name)) return settings;
  struct Engine {
    std::unique_ptr<EngineLogCollector> log;
    size_t lines = 0;
  };
  Engine engines[] = {{make_vllm_log()},
                      {make_sglang_log()},
                      {make_llama_log()},
                      {make_ollama_log()},
                      {make_tgi_log()}};
  size_t total = 0;
  std::string plain;
  for_text_lines(text, [&](std::string_view line, size_t) {
    ++total;
    strip_colours(line.substr(0, kMaxLogLine), plain);
    for (Engine& engine : engines) engine.lines += engine.log->take(plain) ? 1 : 0;
  });
  const auto most =
      std::max_element(std::begin(engines), std::end(engines),
                       [](const Engine& a, const Engine& b) { return a.lines < b.lines; });
  if (most->lines == 0) return std::nullopt;
  EvidenceFile file;
  file.path = name;
  most->log->finish(file);
  const RunSetup& setup = file.setup;
  if (file.observed.empty() && setup.model.empty() && !setup.eager && !setup.offloaded) {
    throw Error("{}: a {} without a line that tells load or speed ({} lines)", name, file.kind,
                total);
  }
  return file;
}

}  // namespace ridge
