// Nsight Systems: tables of `nsys stats`, as CSV or as printed, one or several in a file.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "diagnose/kernel_totals.h"
#include "diagnose/readers/nsight_numbers.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"
#include "diagnose/timeline.h"

namespace ridge {
namespace {

enum class NsysTable : uint8_t {
  none,
  kernels,     // cuda_gpu_kern_sum, formerly gpukernsum
  calls,       // cuda_api_sum
  copies,      // cuda_gpu_mem_time_sum
  copy_sizes,  // cuda_gpu_mem_size_sum
  activities,  // cuda_gpu_sum, cuda_api_gpu_sum: a category tells
  ranges,      // nvtx_sum, nvtx_pushpop_sum
  gpu_trace,   // cuda_gpu_trace: every kernel and copy
  call_trace,  // cuda_api_trace: every call
};

// Where the columns of a table are, and the units of those that have one; -1: not there.
struct NsysColumns {
  int total = -1, count = -1, median = -1, name = -1, category = -1;
  int start = -1, duration = -1, correlation = -1, bytes = -1, device = -1, process = -1;
  double total_unit = 1e-9, median_unit = 1e-9, start_unit = 1e-9, duration_unit = 1e-9;
  double bytes_unit = 1e6;
};

// "Total Time (ns)" -> "Total Time", with its unit.
std::string_view nsys_column(std::string_view cell, double otherwise, double& unit) {
  unit = otherwise;
  const size_t open = cell.rfind('(');
  if (open == cell.npos || cell.back() != ')') return cell;
  unit = nsight_unit(cell.substr(open + 1, cell.size() - open - 2)).value_or(otherwise);
  cell = cell.substr(0, open);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  return cell;
}

bool nsys_contains(std::string_view text, std::string_view part) { return has_text(text, part); }

class NsightSystemsReader {
 public:
  NsightSystemsReader(EvidenceFile& file, const ReadOptions& options)
      : file_(file), options_(options) {}

  void read(std::string_view text);
  bool found() const { return found_; }
  void finish();

 private:
  void line(std::string_view text, size_t number);
  bool header(const std::vector<std::string>& cells, bool csv);
  void summary_row(const std::vector<std::string>& cells, size_t number);
  void trace_row(const std::vector<std::string>& cells);
  KernelProfile summary();
  std::optional<double> number(const std::vector<std::string>& cells, int column);
  std::string_view text_cell(const std::vector<std::string>& cells, int column) const;

  EvidenceFile& file_;
  const ReadOptions& options_;
  NumberFormat format_;
  bool learning_ = true, found_ = false, csv_ = true;
  NsysTable table_ = NsysTable::none;
  NsysColumns columns_;
  KernelTotals totals_;                             // of the summaries' kernels and copies
  std::vector<std::pair<double, double>> medians_;  // of a kernel in seconds, its launches
  double host_to_device_s_ = 0, graph_launches_ = 0, kernel_launches_ = 0,
         host_to_device_bytes_ = 0;
  Timeline timeline_;  // of the traces, and the steps
  size_t bad_rows_ = 0, first_bad_row_ = 0;
};

void NsightSystemsReader::read(std::string_view text) {
  for (const bool learning : {true, false}) {
    learning_ = learning;
    table_ = NsysTable::none;
    for_text_lines(text, [&](std::string_view row, size_t number) { line(row, number); });
  }
}

void NsightSystemsReader::line(std::string_view text, size_t number) {
  if (nsys_contains(text, "Time") || nsys_contains(text, "Start") || nsys_contains(text, "Total")) {
    const bool csv = std::count(text.begin(), text.end(), ',') >= 3;
    if (header(split_nsight_row(text, csv), csv)) return;
  }
  if (table_ == NsysTable::none) return;                  // "Processing [a.sqlite] with ..."
  if (text.find_first_not_of("- ") == text.npos) return;  // the rule below a printed header
  const std::vector<std::string> cells = split_nsight_row(text, csv_);
  // Between two tables of a file: "NOTICE: ...", " ** CUDA API Summary (cuda_api_sum):".
  if (cells.size() < 3) return;
  if (table_ == NsysTable::gpu_trace || table_ == NsysTable::call_trace)
    trace_row(cells);
  else
    summary_row(cells, number);
}

bool NsightSystemsReader::header(const std::vector<std::string>& cells, bool csv) {
  NsysColumns columns;
  bool instances = false, calls = false, range = false, operation = false, result = false;
  for (size_t i = 0; i < cells.size(); ++i) {
    double unit = 0;
    const std::string_view name = nsys_column(cells[i], 1e-9, unit);
    const int at = int(i);
    if (name == "Total Time") columns.total = at, columns.total_unit = unit;
    if (name == "Total") columns.total = at, columns.total_unit = unit == 1e-9 ? 1e6 : unit;
    if (name == "Instances" || name == "Num Calls" || name == "Count" || name == "Operations")
      columns.count = at;
    if (name == "Med" || name == "Median") columns.median = at, columns.median_unit = unit;
    if (name == "Name" || name == "Range" || name == "Operation") columns.name = at;
    if (name == "Category") columns.category = at;
    if (name == "Start") columns.start = at, columns.start_unit = unit;
    if (name == "Duration") columns.duration = at, columns.duration_unit = unit;
    if (name == "CorrId" || name == "CorrID") columns.correlation = at;
    if (name == "Bytes") columns.bytes = at, columns.bytes_unit = unit == 1e-9 ? 1e6 : unit;
    if (name == "Device") columns.device = at;
    if (name == "Pid") columns.process = at;
    instances = instances || name == "Instances";
    calls = calls || name == "Num Calls";
    range = range || name == "Range";
    operation = operation || name == "Operation";
    result = result || name == "Result";
  }
  NsysTable table = NsysTable::none;
  // A printed trace leaves cells empty, and its columns cannot be told by their distance.
  if (columns.name >= 0 && columns.start >= 0 && columns.duration >= 0 && csv)
    table = result ? NsysTable::call_trace : NsysTable::gpu_trace;
  else if (columns.name >= 0 && columns.total >= 0 && columns.count >= 0)
    table = columns.category >= 0 ? NsysTable::activities
            : range               ? NsysTable::ranges
            : calls               ? NsysTable::calls
            : operation ? (columns.total_unit >= 1 ? NsysTable::copy_sizes : NsysTable::copies)
            : instances ? NsysTable::kernels
                        : NsysTable::none;
  if (table == NsysTable::none) return false;
  table_ = table;
  columns_ = columns;
  csv_ = csv;
  found_ = true;
  return true;
}

std::optional<double> NsightSystemsReader::number(const std::vector<std::string>& cells,
                                                  int column) {
  if (column < 0 || size_t(column) >= cells.size()) return {};
  const std::string& cell = cells[size_t(column)];
  if (learning_) format_.learn(cell);
  return format_.parse(cell);
}

std::string_view NsightSystemsReader::text_cell(const std::vector<std::string>& cells,
                                                int column) const {
  return column >= 0 && size_t(column) < cells.size() ? std::string_view(cells[size_t(column)])
                                                      : std::string_view();
}

void NsightSystemsReader::summary_row(const std::vector<std::string>& cells, size_t row) {
  const std::optional<double> total = number(cells, columns_.total);
  const std::optional<double> count = number(cells, columns_.count);
  const std::optional<double> median = number(cells, columns_.median);
  if (learning_) return;
  const std::string name(text_cell(cells, columns_.name));
  constexpr double kMost = 1e15;  // a month in nanoseconds is 2.6e15
  if (!total || !count || *total < 0 || *count < 0 || *count > kMost || *total > 1e18) {
    if (bad_rows_++ == 0) first_bad_row_ = row;
    return;
  }
  const double amount = *total * columns_.total_unit;  // seconds or bytes
  const bool to_device = nsys_contains(name, "Host-to-Device") || nsys_contains(name, "HtoD");
  NsysTable table = table_;
  if (table == NsysTable::activities) {
    const std::string_view category = text_cell(cells, columns_.category);
    table = nsys_contains(category, "KERNEL") ? NsysTable::kernels
            : nsys_contains(category, "API")  ? NsysTable::calls
                                              : NsysTable::copies;
  }
  if (table == NsysTable::kernels) {
    totals_.add(totals_.intern(name), amount, *count);
    const double median_s = median.value_or(0) * columns_.median_unit;
    medians_.emplace_back(median_s > 0 ? median_s : amount / std::max(*count, 1.0), *count);
  }
  if (table == NsysTable::copies) {
    totals_.add(totals_.intern(name, KernelFamily::copy), amount, *count);
    if (to_device) host_to_device_s_ += amount;
  }
  if (table == NsysTable::copy_sizes && to_device) host_to_device_bytes_ += amount;
  if (table == NsysTable::ranges)
    timeline_.add_step(parse_step_annotation(name.substr(name.find(':') == 0 ? 1 : 0)), 0, 0,
                       *count);
  if (table == NsysTable::calls) {
    const HostCall kind = host_call_kind(name, 0);
    if (kind == HostCall::graph_launch) graph_launches_ += *count;
    if (kind == HostCall::launch && nsys_contains(name, "Launch")) kernel_launches_ += *count;
  }
}

void NsightSystemsReader::trace_row(const std::vector<std::string>& cells) {
  const std::optional<double> start = number(cells, columns_.start);
  const std::optional<double> duration = number(cells, columns_.duration);
  const std::optional<double> bytes = number(cells, columns_.bytes);
  if (learning_) return;
  const auto nanoseconds = [](std::optional<double> value, double unit) -> std::optional<int64_t> {
    const double ns = value.value_or(INFINITY) * unit * 1e9;
    if (!(std::abs(ns) < 9e18)) return {};
    return std::llround(ns);
  };
  const std::optional<int64_t> begins = nanoseconds(start, columns_.start_unit);
  const std::optional<int64_t> lasts = nanoseconds(duration, columns_.duration_unit);
  // The timeline counts negative durations.
  const int64_t begin = begins.value_or(0), length = begins && lasts ? *lasts : -1;
  const std::string_view name = text_cell(cells, columns_.name);
  const uint32_t correlation =
      uint32_t(std::clamp(number(cells, columns_.correlation).value_or(0), 0.0, 4294967295.0));
  if (table_ == NsysTable::call_trace)
    return timeline_.add_call(0, begin, length, host_call_kind(name, length), correlation);
  // "NVIDIA H100 80GB HBM3 (3)"
  double index = 0;
  std::string_view device = text_cell(cells, columns_.device);
  if (const size_t open = device.rfind(" ("); open != device.npos && device.back() == ')') {
    index = format_.parse(device.substr(open + 2, device.size() - open - 3)).value_or(0);
    device = device.substr(0, open);
  }
  if (file_.setup.device.empty() && device.size() > 3) file_.setup.device = device;
  const int64_t id = int64_t(std::clamp(index, 0.0, 1e6));
  if (name.substr(0, 1) != "[")
    return timeline_.add_kernel(id, 0, begin, length, timeline_.intern(name), correlation);
  const bool to_device = nsys_contains(name, "Host-to-Device") || nsys_contains(name, "HtoD");
  timeline_.add_copy(id, 0, begin, length, timeline_.intern(name, KernelFamily::copy), correlation,
                     to_device ? Timeline::Copy::host_to_device : Timeline::Copy::other,
                     bytes.value_or(0) * columns_.bytes_unit);
}

// Tables without a time line.
KernelProfile NsightSystemsReader::summary() {
  KernelProfile profile;
  profile.tool = "Nsight Systems";
  for (const auto& [median, count] : medians_) profile.launches += count;
  totals_.fill(profile);
  // The median launch is one of the kernel whose median is in the middle.
  std::sort(medians_.begin(), medians_.end());
  double below = 0;
  for (const auto& [median, count] : medians_) {
    profile.median_kernel_s = median;
    if ((below += count) >= profile.launches / 2) break;
  }
  profile.host_to_device_s = host_to_device_s_;
  profile.host_to_device_bytes = host_to_device_bytes_;
  profile.graph_launches = graph_launches_;
  if (graph_launches_ > 0)
    profile.graph_kernels = std::max(0.0, profile.launches - kernel_launches_);
  profile.wall_s = options_.wall_time_s;
  profile.busy_s = std::min(profile.kernel_s, profile.wall_s);
  return profile;
}

void NsightSystemsReader::finish() {
  if (bad_rows_ > 0)
    file_.notes.push_back(
        fmt::format("{} rows are no numbers, the first in line {}", bad_rows_, first_bad_row_));
  if (timeline_.impossible() > 0)
    file_.notes.push_back(
        fmt::format("{} rows have no time or an impossible one", timeline_.impossible()));
  const KernelProfile traced = timeline_.profile("Nsight Systems");
  if (timeline_.kernels() > 0) {
    if (!timeline_.has_calls())
      file_.notes.push_back(
          "no calls of the host are in the file: export cuda_api_trace too to "
          "see the causes of gaps");
    file_.window = fmt::format("{} from the first to the last kernel", pretty_time(traced.wall_s));
    file_.profile = traced;
    return;
  }
  if (medians_.empty()) {
    file_.notes.push_back("no table of kernels: export cuda_gpu_kern_sum or cuda_gpu_trace");
    return;
  }
  KernelProfile profile = summary();
  profile.steps = traced.steps;
  profile.prefill_tokens = traced.prefill_tokens;
  profile.decode_tokens = traced.decode_tokens;
  if (options_.wall_time_s > 0) {
    file_.window = fmt::format("{}, as stated", pretty_time(options_.wall_time_s));
  } else {
    file_.window = fmt::format("{} of kernels", pretty_time(profile.kernel_s));
    file_.notes.push_back(
        "a summary has no gaps: state its time with --wall-time, or export "
        "cuda_gpu_trace");
  }
  file_.profile = std::move(profile);
}

}  // namespace

std::optional<EvidenceFile> read_nsight_systems_csv(std::string_view text, const std::string& name,
                                                    const ReadOptions& options) {
  if (!nsys_contains(text, "Total Time") && !nsys_contains(text, "Duration") &&
      !nsys_contains(text, "Total (MB)"))
    return {};
  EvidenceFile file;
  file.path = name;
  file.kind = "Nsight Systems";
  NsightSystemsReader reader(file, options);
  reader.read(text);
  if (!reader.found()) return {};
  reader.finish();
  return file;
}

}  // namespace ridge
