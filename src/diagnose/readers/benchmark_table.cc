// Results as tables: what vLLM's and SGLang's benchmarks print, as people paste it, and CSV files
// with a row for each run.
#include <algorithm>
#include <cctype>

#include "diagnose/readers/client_run.h"
#include "diagnose/readers/engine_arguments.h"
#include "diagnose/readers/json_records.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

using nlohmann::json;

constexpr std::string_view kTableHeading = "Serving Benchmark Result";
constexpr std::string_view kOfflineLine = "Throughput: ";

// "Mean TTFT (ms)" -> "mean_ttft_ms".
std::string table_field_name(std::string_view label) {
  std::string name;
  for (const char c : label) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0) {
      name += static_cast<char>(std::tolower(u));
    } else if (!name.empty() && name.back() != '_' && c != ')') {
      name += '_';
    }
  }
  while (name.ends_with('_')) name.pop_back();
  constexpr std::pair<std::string_view, const char*> kSaved[] = {
      {"successful_requests", "completed"},
      {"failed_requests", "failed"},
      {"benchmark_duration_s", "duration"},
      {"total_generated_tokens", "total_output_tokens"},
      {"total_generated_tokens_retokenized", "total_output_tokens_retokenized"},
      {"request_throughput_req_s", "request_throughput"},
      {"output_token_throughput_tok_s", "output_throughput"},
      {"input_token_throughput_tok_s", "input_throughput"},
      {"total_token_throughput_tok_s", "total_token_throughput"},
      {"traffic_request_rate", "request_rate"},
      {"request_rate_configured_rps", "request_rate"},
      {"maximum_request_concurrency", "max_concurrency"},
      {"max_request_concurrency", "max_concurrency"},
      {"acceptance_length", "spec_decode_acceptance_length"},
      {"drafts", "spec_decode_num_drafts"},
      {"draft_tokens", "spec_decode_draft_tokens"},
      {"accepted_tokens", "spec_decode_accepted_tokens"}};
  for (const auto& [printed, saved] : kSaved) {
    if (name == printed) return saved;
  }
  return name;
}

// One line of a table: "# Mean TTFT (ms):      12.5   ".
void read_table_line(std::string_view line, json& table) {
  const size_t colon = line.find(':');
  if (colon == line.npos || colon > 80) return;
  const std::string name = table_field_name(line.substr(0, colon));
  const size_t value = line.find_first_not_of(" \t", colon + 1);
  if (name.empty() || value == line.npos || table.contains(name)) return;
  std::string_view text = line.substr(value);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  if (const auto number = leading_number(text)) {
    table[name] = *number;
  } else if (name == "backend") {
    table[name] = std::string(text.substr(0, 64));
  }
}

// "Throughput: 12.5 requests/s, 4567.8 total tokens/s, 1234.5 output tokens/s".
bool read_offline_line(std::string_view line, json& table) {
  const size_t at = line.find(kOfflineLine);
  if (at == line.npos || line.find("requests/s", at) == line.npos) return false;
  table["request_throughput"] = leading_number(line.substr(at + kOfflineLine.size())).value_or(0);
  constexpr std::string_view kOutput = " output tokens/s";
  const size_t output = line.find(kOutput, at);
  if (output != line.npos) {
    const size_t begin = line.rfind(' ', output - 1);
    if (const auto number = leading_number(line.substr(begin + 1))) {
      table["output_throughput"] = *number;
    }
  }
  return true;
}

void add_arguments(std::string_view line, json& table) {
  if (line.find("Namespace(") == line.npos) return;
  const EngineArguments arguments = parse_arguments(line);
  for (const char* name : {"model", "backend"}) {
    const auto found = arguments.find(name);
    if (found != arguments.end() && found->second != "None") table[name] = found->second;
  }
}

// "ttft_mean_ms" -> "mean_ttft_ms": the statistic stands first in what the tools save.
std::string column_field_name(std::string_view column) {
  std::string name = table_field_name(column);
  constexpr std::pair<std::string_view, const char*> kColumns[] = {
      {"out_tok_s", "output_throughput"},
      {"output_tok_s", "output_throughput"},
      {"tok_s", "output_throughput"},
      {"in_tok_s", "input_throughput"},
      {"rate_rps", "request_rate"},
      {"rps", "request_rate"},
      {"achieved_rps", "request_throughput"},
      {"duration_s", "duration"},
      {"ok", "completed"},
      {"prompt_len", "input_len"},
      {"output_len", "output_len"},
      {"model", "model_id"},
      {"gpu", "device"}};
  for (const auto& [printed, saved] : kColumns) {
    if (name == printed) return saved;
  }
  if (name.starts_with("reported_")) name.erase(0, 9);
  for (const std::string_view statistic : {"mean", "median", "p50", "p90", "p95", "p99"}) {
    for (const auto& [metric, saved] : {std::pair{"ttft", "ttft"},
                                        {"itl", "itl"},
                                        {"tpot", "tpot"},
                                        {"e2e", "e2el"},
                                        {"e2el", "e2el"}}) {
      if (name == std::string(metric) + "_" + std::string(statistic) + "_ms") {
        return std::string(statistic) + "_" + saved + "_ms";
      }
    }
  }
  return name;
}

}  // namespace

std::vector<json> tabled_results(std::string_view text) {
  std::vector<json> rows;
  std::vector<std::string> header;
  const std::string_view head = text.substr(0, text.find('\n'));
  // A cheap look: at least two latencies with their unit.
  const size_t unit = head.find("_ms");
  if (head.find(',') == head.npos || unit == head.npos || head.find("_ms", unit + 3) == head.npos) {
    return rows;
  }
  for_text_lines(text, [&](std::string_view line, size_t) {
    const std::vector<std::string> fields = split_csv(line);
    if (header.empty()) {
      for (const std::string& field : fields) header.push_back(column_field_name(field));
      return;
    }
    json row = json::object();
    for (size_t i = 0; i < std::min(header.size(), fields.size()); ++i) {
      const auto number = leading_number(fields[i]);
      const bool word = header[i] == "model_id" || header[i] == "device" || header[i] == "backend";
      if (word) {
        row[header[i]] = fields[i];
      } else if (number) {
        row[header[i]] = *number;
      }
    }
    if (rows.size() <= kMaxRuns) rows.push_back(std::move(row));  // one more: the limit is noted
  });
  return rows;
}

std::vector<json> printed_results(std::string_view text) {
  std::vector<json> tables;
  if (text.find(kTableHeading) == text.npos && text.find(kOfflineLine) == text.npos) return tables;
  json table = json::object();  // with the lines before the heading, which tell the load
  bool inside = false;
  while (!text.empty() && tables.size() <= kMaxRuns) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find(kTableHeading) != line.npos) {
      inside = true;
    } else if (inside && line.find("==================") != line.npos) {
      tables.push_back(std::move(table));
      table = json::object();
      inside = false;
    } else if (read_offline_line(line, table)) {
      tables.push_back(std::move(table));
      table = json::object();
    } else {
      add_arguments(line, table);
      if (inside || line.find("oncurrency:") != line.npos ||
          line.find("request rate:") != line.npos) {
        read_table_line(line, table);
      }
    }
  }
  if (inside) tables.push_back(std::move(table));  // the end of the table was not pasted
  return tables;
}

}  // namespace ridge
