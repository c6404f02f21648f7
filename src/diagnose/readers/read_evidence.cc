#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "diagnose/readers/live.h"
#include "diagnose/readers/metrics_page.h"
#include "diagnose/readers/metrics_window.h"
#include "diagnose/readers/reader.h"

namespace ridge {
namespace {

constexpr size_t kHeadBytes = 64u << 10;
constexpr size_t kMostTextBytes = 256u << 20;  // of formats that are read whole
constexpr size_t kMostFiles = 256;
constexpr size_t kMostNotes = 100;  // of a file
constexpr double kSampleEvery_s = 1;

// The first `most` bytes. Of a damaged archive what comes before the damage is used.
std::string read_unpacked(const EvidenceInput& input, size_t most, UnpackBudget& budget) {
  UnpackedReader reader(input, budget);
  std::string text;
  for (char block[64u << 10]; text.size() < most;) {
    const size_t got = reader.read(block, std::min(sizeof(block), most - text.size()));
    if (got == 0) break;
    text.append(block, got);
  }
  return text;
}

// 0: not known.
double modified_s(const EvidenceInput& input) {
  if (input.sent) return input.sent_modified_s;
  std::error_code problem;
  const auto time = std::filesystem::last_write_time(input.name, problem);
  if (problem) return 0;
  // Unix time, as a page's process_start_time_seconds is.
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch())
      .count();
}

EvidenceFile read_text(const EvidenceInput& input, const ReadOptions& options,
                       UnpackBudget& budget) {
  const std::string& path = input.name;
  const std::string text = read_unpacked(input, kMostTextBytes + 1, budget);
  if (text.size() > kMostTextBytes) {
    throw Error("{}: larger than {} MB; only traces may be", path, kMostTextBytes >> 20);
  }
  if (auto file = read_nsight_compute(text, path)) return *std::move(file);
  if (auto file = read_nsight_systems_csv(text, path, options)) return *std::move(file);
  if (auto file = read_nvidia_smi(text, path)) return *std::move(file);
  if (auto file = read_benchmark_result(text, path)) return *std::move(file);
  if (auto file = read_llama_bench(text, path)) return *std::move(file);
  if (auto file = read_request_log(text, path)) return *std::move(file);
  if (auto file = read_engine_log(text, path)) return *std::move(file);
  throw Error(
      "{}: not recognised. Ridge reads Prometheus pages, nvidia-smi, Nsight and PyTorch profiles, "
      "benchmark results and engine logs (docs/explain.md)",
      path);
}

void read_file_pages(const EvidenceInput& input, UnpackBudget& budget,
                     std::vector<MetricsPage>& pages) {
  const std::string text = read_unpacked(input, kMostTextBytes, budget);
  std::vector<MetricsPage> found = parse_metrics(text, input.name);
  // The time of a single page is when its file was written, if nothing better is known.
  const double written_s = modified_s(input);
  if (found.size() == 1 && !found.front().time_s && written_s > 0) {
    found.front().time_s = written_s;
    found.front().time_from_file = true;
  }
  std::move(found.begin(), found.end(), std::back_inserter(pages));
  if (pages.size() > kMostPages) throw Error("{}: more than {} scrapes", input.name, kMostPages);
}

// A file that is wrong everywhere does not need a note for each place.
void keep_first_notes(EvidenceFile& file) {
  if (file.notes.size() <= kMostNotes) return;
  const size_t more = file.notes.size() - kMostNotes;
  file.notes.resize(kMostNotes);
  file.notes.push_back(fmt::format("and {} more notes", more));
}

}  // namespace

Evidence read_evidence(const std::vector<EvidenceInput>& inputs, const ReadOptions& options) {
  if (inputs.size() > kMostFiles) throw Error("at most {} files at once", kMostFiles);
  Evidence evidence;
  std::vector<MetricsPage> pages;
  UnpackBudget budget{options.most_unpacked_bytes};
  for (const EvidenceInput& input : inputs) {
    const std::string& path = input.name;
    if (!input.sent && (path.starts_with("http://") || path.starts_with("https://"))) {
      std::vector<MetricsPage> live =
          sample_metrics(path, options.sample_s, kSampleEvery_s, options.tick);
      std::move(live.begin(), live.end(), std::back_inserter(pages));
      continue;
    }
    const std::string head = read_unpacked(input, kHeadBytes, budget);
    if (head.empty()) throw Error("{}: is empty", path);
    if (is_sqlite(head)) {
      evidence.files.push_back(read_nsight_systems_sqlite(input));
    } else if (is_prometheus_text(head)) {
      read_file_pages(input, budget, pages);
    } else if (is_pytorch_trace(head)) {
      evidence.files.push_back(read_pytorch_trace(input, budget));
    } else {
      evidence.files.push_back(read_text(input, options, budget));
    }
  }
  if (!pages.empty()) {
    std::vector<EvidenceFile> found = observe_metrics(pages, options.window_s);
    std::move(found.begin(), found.end(), std::back_inserter(evidence.files));
  }
  std::for_each(evidence.files.begin(), evidence.files.end(), keep_first_notes);
  return evidence;
}

}  // namespace ridge
