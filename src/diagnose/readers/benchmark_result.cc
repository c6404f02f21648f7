// Results that clients save: which tool wrote them is told by their names.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "diagnose/readers/client_run.h"
#include "diagnose/readers/json_records.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

// Names that only results of benchmarks have. Files of other kinds are not parsed to find out.
constexpr std::string_view kResultNames[] = {"\"output_throughput\"",
                                             "\"request_throughput\"",
                                             "\"mean_ttft_ms\"",
                                             "\"time_to_first_token\"",
                                             "\"time_to_first_token_ms\"",
                                             "\"request_latency\"",
                                             "\"total_num_tokens\"",
                                             "\"avg_latency\"",
                                             "\"share_of_ceiling\"",
                                             "\"median_decode_latency\"",
                                             "\"decode_throughput\"",
                                             "\"successes\"",
                                             "\"output_token_throughput\"",
                                             "\"overall_throughput\""};

bool has_result_names(std::string_view text) {
  return std::any_of(std::begin(kResultNames), std::end(kResultNames),
                     [&](std::string_view name) { return has_text(text, name); });
}

}  // namespace

std::optional<EvidenceFile> read_benchmark_result(std::string_view text, const std::string& name) {
  std::vector<ClientRun> runs;
  std::vector<std::string> notes;
  const auto read = [&](const nlohmann::json& object) {
    if (runs.size() >= kMaxRuns) {
      if (notes.empty())
        notes.push_back(fmt::format("runs after the first {} are not read", kMaxRuns));
      return;
    }
    // The order matters where names overlap: the tools with a structure of their own come first.
    read_guidellm_result(object, runs) || read_inference_perf_result(object, runs) ||
        read_aiperf_result(object, runs) || read_ridge_bench(object, runs) ||
        read_flat_result(object, runs);
  };
  if (begins_json(text)) {
    if (!has_result_names(text)) return std::nullopt;
    for_json_records(
        text, [&](const nlohmann::json& object, size_t) { read(object); }, notes);
  } else {
    for (const nlohmann::json& table : printed_results(text)) read(table);
    if (runs.empty()) {
      for (const nlohmann::json& row : tabled_results(text)) read(row);
    }
  }
  if (runs.empty()) return std::nullopt;
  EvidenceFile file = choose_run(std::move(runs), name);
  file.notes.insert(file.notes.end(), notes.begin(), notes.end());
  if (file.observed.empty()) {
    throw Error("{}: a {} without a single usable figure{}", name, file.kind,
                file.notes.empty() ? "" : ": " + file.notes.front());
  }
  return file;
}

}  // namespace ridge
