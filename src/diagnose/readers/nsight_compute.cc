// Nsight Compute: `ncu --csv` (details and raw pages, per-kernel summaries), and the details page
// as ncu prints it without --csv.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "diagnose/kernel_names.h"
#include "diagnose/kernel_totals.h"
#include "diagnose/readers/nsight_numbers.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

// The counters of one launch, or of `count` launches on average. SI; shares 0 to 1.
struct NcuLaunch {
  std::string kernel;
  double count = 1;
  std::optional<double> duration, dram, dram_read, dram_write, dram_rate, flops;
  std::optional<double> memory_share, dram_share, compute_share, tensor_share, occupancy, waves;

  std::optional<double> dram_bytes() const {
    if (dram) return dram;
    if (dram_read || dram_write) return dram_read.value_or(0) + dram_write.value_or(0);
    if (dram_rate && duration) return *dram_rate * *duration;
    return {};
  }
};

bool ncu_contains(std::string_view text, std::string_view part) { return has_text(text, part); }

// Floating-point operations that one count of an instruction metric stands for; 0: none.
double flops_per_count(std::string_view metric) {
  constexpr std::string_view suffix = "_pred_on.sum";
  if (metric.size() < suffix.size() || metric.substr(metric.size() - 4) != ".sum") return 0;
  if (ncu_contains(metric, "__ops_path_tensor_src_")) return 1;
  if (!ncu_contains(metric, "sass_thread_inst_executed_op_") || !ncu_contains(metric, suffix))
    return 0;
  for (const char* fused : {"_op_ffma_", "_op_hfma_", "_op_dfma_"})
    if (ncu_contains(metric, fused)) return 2;
  for (const char* single :
       {"_op_fadd_", "_op_fmul_", "_op_hadd_", "_op_hmul_", "_op_dadd_", "_op_dmul_"})
    if (ncu_contains(metric, single)) return 1;
  return 0;
}

// Metrics have a name of their own on the raw page and one for people on the details page.
// "Memory Throughput" is both a share and a rate: the unit tells.
void set_ncu_metric(NcuLaunch& launch, std::string_view metric, bool percent, double value) {
  struct Known {
    std::string_view name;
    bool percent;
    std::optional<double> NcuLaunch::*field;
  };
  static constexpr std::string_view kElapsed = ".avg.pct_of_peak_sustained_elapsed";
  static const Known known[] = {
      {"Duration", false, &NcuLaunch::duration},
      {"gpu__time_duration.sum", false, &NcuLaunch::duration},
      {"gpu__time_duration.avg", false, &NcuLaunch::duration},
      {"dram__bytes.sum", false, &NcuLaunch::dram},
      {"dram__bytes_read.sum", false, &NcuLaunch::dram_read},
      {"dram__bytes_write.sum", false, &NcuLaunch::dram_write},
      {"Memory Throughput", false, &NcuLaunch::dram_rate},
      {"dram__bytes.sum.per_second", false, &NcuLaunch::dram_rate},
      {"Memory Throughput", true, &NcuLaunch::memory_share},
      {"SOL Memory", true, &NcuLaunch::memory_share},
      {"Memory [%]", true, &NcuLaunch::memory_share},
      {"DRAM Throughput", true, &NcuLaunch::dram_share},
      {"SOL DRAM", true, &NcuLaunch::dram_share},
      {"Compute (SM) Throughput", true, &NcuLaunch::compute_share},
      {"SOL SM", true, &NcuLaunch::compute_share},
      {"SM [%]", true, &NcuLaunch::compute_share},
      {"Achieved Occupancy", true, &NcuLaunch::occupancy},
      {"sm__warps_active.avg.pct_of_peak_sustained_active", true, &NcuLaunch::occupancy},
      {"Waves Per SM", false, &NcuLaunch::waves},
      {"launch__waves_per_multiprocessor", false, &NcuLaunch::waves},
  };
  for (const Known& k : known)
    if (k.name == metric && k.percent == percent) launch.*k.field = value;
  if (metric.size() > kElapsed.size() &&
      metric.substr(metric.size() - kElapsed.size()) == kElapsed) {
    const std::string_view unit = metric.substr(0, metric.size() - kElapsed.size());
    if (unit == "gpu__compute_memory_throughput") launch.memory_share = value;
    if (unit == "dram__throughput" || unit == "gpu__dram_throughput") launch.dram_share = value;
    if (unit == "sm__throughput") launch.compute_share = value;
  }
  // One metric for each kind of matrix instruction, and one for all: the largest.
  if (percent && ncu_contains(metric, "pct_of_peak") &&
      (ncu_contains(metric, "sm__pipe_tensor") ||
       ncu_contains(metric, "sm__inst_executed_pipe_tensor")))
    launch.tensor_share = std::max(launch.tensor_share.value_or(0), value);
  if (const double flops = flops_per_count(metric); flops > 0)
    launch.flops = launch.flops.value_or(0) + flops * value;
}

// Sums of times, bytes and operations; shares are means weighted by time.
class NcuKernelSum {
 public:
  void add(const NcuLaunch& launch) {
    const double seconds = launch.duration.value_or(0) * launch.count;
    const double weight = seconds > 0 ? seconds : 1e-12 * launch.count;
    time_.seconds += seconds;
    time_.launches += launch.count;
    weight_ += weight;
    sum(time_.dram_bytes, launch.dram_bytes(), launch.count);
    // Tensor instructions alone may have been counted: none of them does not mean no operations.
    if (launch.flops.value_or(0) > 0) sum(time_.flops, launch.flops, launch.count);
    const std::optional<double> memory =
        launch.memory_share ? launch.memory_share : launch.dram_share;
    mean(time_.memory_share, memory, weight);
    mean(time_.dram_share, launch.dram_share, weight);
    mean(time_.compute_share, launch.compute_share, weight);
    mean(time_.tensor_share, launch.tensor_share, weight);
    mean(time_.occupancy, launch.occupancy, weight);
    mean(time_.waves, launch.waves, weight);
  }
  KernelTime& time() { return time_; }

 private:
  static void sum(std::optional<double>& total, std::optional<double> value, double count) {
    if (value) total = total.value_or(0) + *value * count;
  }
  void mean(std::optional<double>& total, std::optional<double> value, double weight) const {
    if (value)
      total = total.value_or(*value) + (*value - total.value_or(*value)) * weight / weight_;
  }
  KernelTime time_;
  double weight_ = 0;
};

// Goes over the text twice: first to learn how its numbers are written.
class NsightComputeReader {
 public:
  explicit NsightComputeReader(EvidenceFile& file) : file_(file) {}

  void read(std::string_view text);
  void finish();

 private:
  struct Columns {
    int id = -1, kernel = -1, metric = -1, unit = -1, value = -1, invocations = -1, device = -1;
    std::vector<std::pair<size_t, std::string>> raw;  // columns of the raw page
  };

  void row(std::string_view line, size_t number);
  bool header(const std::vector<std::string>& cells);
  void csv_row(const std::vector<std::string>& cells, size_t number);
  void printed_row(std::string_view line, size_t number);
  void begin_launch(std::string key, std::string_view kernel);
  void end_launch();
  void add(std::string_view metric, const std::string& unit, const std::string& value,
           size_t number);

  EvidenceFile& file_;
  NumberFormat format_;
  bool learning_ = true;
  std::optional<Columns> columns_;  // none: the printed page
  std::vector<std::string> raw_units_;
  std::string key_;                  // of the launch that rows add to
  std::optional<NcuLaunch> launch_;  // the same
  // What ended launches add up to. Further kernels than the first 65536 share a name.
  struct Kernel {
    KernelFamily family;
    NcuKernelSum* sum;
  };
  static constexpr size_t kMostKernels = 65'536;
  std::map<std::string, Kernel> kernels_;  // by the full name
  std::map<std::pair<std::string, KernelFamily>, NcuKernelSum> sums_;
  KernelProfile profile_;
  size_t untimed_ = 0;
};

void NsightComputeReader::read(std::string_view text) {
  for (const bool learning : {true, false}) {
    learning_ = learning;
    columns_.reset();
    key_.clear();
    launch_.reset();
    for_text_lines(text, [&](std::string_view line, size_t number) { row(line, number); });
  }
  end_launch();
}

void NsightComputeReader::row(std::string_view line, size_t number) {
  if (line.substr(0, 2) == "==") return;  // "==PROF== Connected to process 1234"
  if (ncu_contains(line, "Kernel Name") && ncu_contains(line, ",")) {
    if (header(split_csv(line))) return;
  }
  if (columns_)
    csv_row(split_csv(line), number);
  else
    printed_row(line, number);
}

bool NsightComputeReader::header(const std::vector<std::string>& cells) {
  Columns columns;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string& cell = cells[i];
    if (cell == "ID") columns.id = int(i);
    if (cell == "Kernel Name") columns.kernel = int(i);
    if (cell == "Metric Name") columns.metric = int(i);
    if (cell == "Metric Unit") columns.unit = int(i);
    if (cell == "Metric Value" || cell == "Average") columns.value = int(i);
    if (cell == "Invocations") columns.invocations = int(i);
    if (cell == "Device Name" || cell == "device__attribute_display_name") columns.device = int(i);
    if (ncu_contains(cell, "__")) columns.raw.emplace_back(i, cell);
  }
  if (columns.kernel < 0) return false;
  if (columns.metric >= 0 ? columns.value < 0 : columns.raw.empty()) return false;
  columns_ = std::move(columns);
  raw_units_.clear();
  return true;
}

void NsightComputeReader::csv_row(const std::vector<std::string>& cells, size_t number) {
  static const std::string none;
  const auto cell = [&](int column) -> const std::string& {
    return column >= 0 && size_t(column) < cells.size() ? cells[size_t(column)] : none;
  };
  const Columns& columns = *columns_;
  if (cell(columns.kernel).empty()) {
    if (columns.metric < 0 && raw_units_.empty()) raw_units_ = cells;
    return;
  }
  if (file_.setup.device.empty()) file_.setup.device = cell(columns.device);
  if (columns.metric < 0) {
    begin_launch({}, cell(columns.kernel));
    for (const auto& [column, metric] : columns.raw)
      add(metric, column < raw_units_.size() ? raw_units_[column] : none, cell(int(column)),
          number);
    return;
  }
  begin_launch(cell(columns.id) + "\n" + cell(columns.kernel), cell(columns.kernel));
  if (const std::optional<double> count = format_.parse(cell(columns.invocations)))
    if (*count >= 1 && *count < 1e12) launch_->count = *count;
  add(cell(columns.metric), cell(columns.unit), cell(columns.value), number);
}

// "  NAME (1712, 1, 1)x(16, 4, 1), Context 1, Stream 7, Device 0, CC 12.0", then sections of
// "    DRAM Frequency                  Ghz        13.77".
void NsightComputeReader::printed_row(std::string_view line, size_t number) {
  const size_t context = line.find(", Context ");
  if (context != line.npos) {
    std::string_view kernel = line.substr(0, context);
    const size_t block = kernel.rfind(")x(");
    if (block != kernel.npos) kernel = kernel.substr(0, kernel.rfind(" (", block));
    // Older versions print the date: ", 2021-Mar-05 12:00:00".
    const size_t date = kernel.rfind(", 20");
    if (date != kernel.npos) kernel = kernel.substr(0, date);
    while (!kernel.empty() && kernel.front() == ' ') kernel.remove_prefix(1);
    return begin_launch({}, kernel);
  }
  if (!launch_) return;
  std::vector<std::string> cells = split_nsight_row(line, false);
  if (cells.size() == 2) {  // no unit, or one so long that a single space is before the value
    const size_t space = cells[1].find(' ');
    if (space == std::string::npos)
      cells.insert(cells.begin() + 1, std::string());
    else
      cells = {cells[0], cells[1].substr(0, space), cells[1].substr(space + 1)};
  }
  if (cells.size() == 3) add(cells[0], cells[1], cells[2], number);
}

// An empty key: each row is a launch.
void NsightComputeReader::begin_launch(std::string key, std::string_view kernel) {
  if (!key.empty() && key == key_) return;
  key_ = std::move(key);
  end_launch();
  launch_.emplace();
  launch_->kernel = kernel;
}

void NsightComputeReader::end_launch() {
  if (!launch_ || learning_) return;
  const NcuLaunch& launch = *launch_;
  auto place = kernels_.find(launch.kernel);
  if (place == kernels_.end()) {
    const bool further = kernels_.size() >= kMostKernels;
    const std::string name = further ? "(further names)" : launch.kernel;
    const KernelFamily family = further ? KernelFamily::other : kernel_family(name);
    NcuKernelSum& sum = sums_[{short_kernel_name(name), family}];
    place = kernels_.try_emplace(name, Kernel{family, &sum}).first;
  }
  const auto& [family, sum] = place->second;
  const double seconds = launch.duration.value_or(0) * launch.count;
  sum->add(launch);
  profile_.launches += launch.count;
  profile_.kernel_s += seconds;
  profile_.families[size_t(family)].seconds += seconds;
  profile_.families[size_t(family)].launches += launch.count;
  untimed_ += !launch.duration;
  launch_.reset();
}

void NsightComputeReader::finish() {
  if (sums_.empty()) throw Error("{}: a table of Nsight Compute without any kernel", file_.path);
  if (untimed_ > 0)
    file_.notes.push_back(
        fmt::format("{} launches have no duration: collect gpu__time_duration.sum", untimed_));
  profile_.tool = "Nsight Compute";
  profile_.serialized = true;
  for (auto& [key, sum] : sums_) {
    sum.time().name = key.first;
    sum.time().family = key.second;
    profile_.kernels.push_back(std::move(sum.time()));
  }
  keep_longest_kernels(profile_.kernels);
  file_.window = fmt::format("{} launches, one at a time", profile_.launches);
  file_.profile = std::move(profile_);
}

void NsightComputeReader::add(std::string_view metric, const std::string& unit,
                              const std::string& value, size_t number) {
  if (learning_) return format_.learn(value);
  const std::optional<double> parsed = format_.parse(value), scale = nsight_unit(unit);
  if (!parsed || !scale) return;  // "n/a", names, units of metrics that are not needed
  if (*parsed < 0 || *parsed > (unit == "%" ? 1000 : 1e18)) {
    if (file_.notes.size() < 20)
      file_.notes.push_back(fmt::format("line {}: {} is {} {}, which cannot be: left out", number,
                                        metric, value, unit));
    return;
  }
  set_ncu_metric(*launch_, metric, unit == "%", *parsed * *scale);
}

}  // namespace

std::optional<EvidenceFile> read_nsight_compute(std::string_view text, const std::string& name) {
  const bool csv = ncu_contains(text, "Kernel Name") &&
                   (ncu_contains(text, "Metric Name") || ncu_contains(text, "gpu__") ||
                    ncu_contains(text, "sm__") || ncu_contains(text, "dram__"));
  const bool printed = ncu_contains(text, ", Context ") && ncu_contains(text, "Section: ");
  if (!csv && !printed) return {};
  EvidenceFile file;
  file.path = name;
  file.kind = "Nsight Compute";
  NsightComputeReader reader(file);
  reader.read(text);
  reader.finish();
  return file;
}

}  // namespace ridge
