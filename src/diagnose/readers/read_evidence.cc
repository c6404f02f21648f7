#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "diagnose/readers/live.h"
#include "diagnose/readers/metrics_page.h"
#include "diagnose/readers/metrics_window.h"
#include "diagnose/readers/reader.h"

namespace ridge {
namespace {

constexpr size_t kHeadBytes = 64u << 10;
constexpr size_t kMostTextBytes = 256u << 20;  // of formats that are read whole
constexpr size_t kMostFiles = 256;
constexpr double kSampleEvery_s = 1;

// The first `most` bytes, unpacked where the file is gzipped. gzread passes other files through.
std::string read_unpacked(const std::string& path, size_t most) {
  std::error_code problem;
  if (std::filesystem::is_directory(path, problem)) throw Error("{}: is a folder", path);
  const gzFile file = gzopen(path.c_str(), "rb");
  if (!file) throw Error("{}: no such file, or it cannot be read", path);
  gzbuffer(file, 256u << 10);
  std::string text;
  for (char block[64u << 10]; text.size() < most;) {
    const size_t want = std::min(sizeof(block), most - text.size());
    const int got = gzread(file, block, static_cast<unsigned>(want));
    if (got <= 0) break;  // the end, or a damaged archive: what came before it is used
    text.append(block, static_cast<size_t>(got));
  }
  gzclose(file);
  return text;
}

double modified_s(const std::string& path) {
  std::error_code problem;
  const auto time = std::filesystem::last_write_time(path, problem);
  if (problem) return 0;
  // Unix time, as a page's process_start_time_seconds is.
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch())
      .count();
}

EvidenceFile read_text(const std::string& path, const ReadOptions& options) {
  const std::string text = read_unpacked(path, kMostTextBytes + 1);
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

void read_file_pages(const std::string& path, std::vector<MetricsPage>& pages) {
  const std::string text = read_unpacked(path, kMostTextBytes);
  std::vector<MetricsPage> found = parse_metrics(text, path);
  // The time of a single page is when its file was written, if nothing better is known.
  if (found.size() == 1 && !found.front().time_s) {
    found.front().time_s = modified_s(path);
    found.front().time_from_file = true;
  }
  std::move(found.begin(), found.end(), std::back_inserter(pages));
}

}  // namespace

Evidence read_evidence(const std::vector<std::string>& paths, const ReadOptions& options) {
  if (paths.size() > kMostFiles) throw Error("at most {} files at once", kMostFiles);
  Evidence evidence;
  std::vector<MetricsPage> pages;
  for (const std::string& path : paths) {
    if (path.starts_with("http://") || path.starts_with("https://")) {
      std::vector<MetricsPage> live =
          sample_metrics(path, options.sample_s, kSampleEvery_s, options.tick);
      std::move(live.begin(), live.end(), std::back_inserter(pages));
      continue;
    }
    const std::string head = read_unpacked(path, kHeadBytes);
    if (head.empty()) throw Error("{}: is empty", path);
    if (is_sqlite(head)) {
      evidence.files.push_back(read_nsight_systems_sqlite(path));
    } else if (is_prometheus_text(head)) {
      read_file_pages(path, pages);
    } else if (is_pytorch_trace(head)) {
      evidence.files.push_back(read_pytorch_trace(path));
    } else {
      evidence.files.push_back(read_text(path, options));
    }
  }
  if (!pages.empty()) {
    std::vector<EvidenceFile> found = observe_metrics(pages, options.window_s);
    std::move(found.begin(), found.end(), std::back_inserter(evidence.files));
  }
  return evidence;
}

}  // namespace ridge
