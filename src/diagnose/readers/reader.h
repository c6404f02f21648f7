// Readers of evidence. A file is recognised by its content, not by its name; each format is a file
// of this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/evidence.h"
#include "diagnose/readers/evidence_input.h"

namespace ridge {

// What a person says about the files.
struct ReadOptions {
  double window_s = 0;     // between two snapshots; 0: from the files' timestamps
  double wall_time_s = 0;  // that a kernel summary covers; 0: not known
  // Of all files together, gzipped ones unpacked; above: Error. Formats that are read whole have a
  // limit of 256 MiB a file besides; traces are read in bounded memory, however long they are.
  uint64_t most_unpacked_bytes = UINT64_MAX;
  double sample_s = 30;              // how long a live endpoint is sampled
  std::function<bool(double)> tick;  // called while sampling with the seconds gone; false ends it
};

// Reads all files of a case; "http://HOST:PORT/metrics" samples a live endpoint. Snapshots of one
// endpoint are joined to a window. A file that cannot be read at all throws Error naming it; what
// cannot be read inside a file becomes a note.
Evidence read_evidence(const std::vector<EvidenceInput>& inputs, const ReadOptions& options);

// Runs of benchmarks that are read of one file; memory is the limit.
inline constexpr size_t kMaxRuns = 10'000;

// --- One function per format: nullopt where the text is not of that format; Error "NAME: line 3:
// ..." where it is, and nothing in it can be used. `name` is for messages.

// Text that has a whole file's content. Called in this order by read_evidence().
std::optional<EvidenceFile> read_nsight_compute(std::string_view text, const std::string& name);
std::optional<EvidenceFile> read_nsight_systems_csv(std::string_view text, const std::string& name,
                                                    const ReadOptions& options);
std::optional<EvidenceFile> read_nvidia_smi(std::string_view text, const std::string& name);
std::optional<EvidenceFile> read_benchmark_result(std::string_view text, const std::string& name);
std::optional<EvidenceFile> read_llama_bench(std::string_view text, const std::string& name);
std::optional<EvidenceFile> read_request_log(std::string_view text, const std::string& name);
std::optional<EvidenceFile> read_engine_log(std::string_view text, const std::string& name);

// Files that are too large or not text: read as they come. Recognised by `head`, the first bytes
// (of the unpacked content where the file is gzipped).
bool is_sqlite(std::string_view head);
// Reads tables with rows of their own: views, virtual tables, generated columns, functions and
// triggers of the file's schema are not run. Throws Error where SQLite needs more instructions than
// this, which rows that are stored once never do, or more than 10 s and a second for each MiB.
inline constexpr uint64_t kSqliteInstructions = 1'000'000, kSqliteInstructionsPerByte = 4;
EvidenceFile read_nsight_systems_sqlite(const EvidenceInput& input);
bool is_pytorch_trace(std::string_view head);
EvidenceFile read_pytorch_trace(const EvidenceInput& input, UnpackBudget& budget);
EvidenceFile read_pytorch_trace(const EvidenceInput& input);  // of any length

// Pages of Prometheus text have a parser and a comparison of their own: metrics_page.h,
// metrics_window.h.

}  // namespace ridge
