// nvidia-smi: `--query-gpu ... --format=csv`, `dmon`, and the table that it prints by itself.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/device_samples.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"
#include "load/trace_fields.h"

namespace ridge {
namespace {

using Q = Quantity;

constexpr double kMebibyte = 1 << 20;
constexpr size_t kMostPreamble = 50;    // lines before the header
constexpr size_t kFewestForWindow = 5;  // samples of one device
constexpr uint64_t kNoReason = ~uint64_t(0);

struct SmiColumn {
  std::string_view name;
  Q quantity;
  double scale;
};
// The first of a quantity's columns that a file has is read.
constexpr SmiColumn kQueryColumns[] = {
    {"utilization.gpu", Q::gpu_util, 0.01},
    {"power.draw", Q::power, 1},
    {"power.draw.average", Q::power, 1},
    {"power.draw.instant", Q::power, 1},
    {"power.limit", Q::power_limit, 1},
    {"enforced.power.limit", Q::power_limit, 1},
    {"clocks.current.sm", Q::sm_clock, 1e6},
    {"clocks.sm", Q::sm_clock, 1e6},
    {"clocks.current.graphics", Q::sm_clock, 1e6},
    {"clocks.gr", Q::sm_clock, 1e6},
    {"clocks.max.sm", Q::max_sm_clock, 1e6},
    {"clocks.max.graphics", Q::max_sm_clock, 1e6},
    {"clocks.max.gr", Q::max_sm_clock, 1e6},
    {"temperature.gpu", Q::temperature, 1},
    {"memory.used", Q::memory_used, kMebibyte},
    {"memory.total", Q::memory_total, kMebibyte},
};
constexpr SmiColumn kDmonColumns[] = {
    {"sm", Q::gpu_util, 0.01},           {"pwr", Q::power, 1},
    {"gtemp", Q::temperature, 1},        {"temp", Q::temperature, 1},
    {"pclk", Q::sm_clock, 1e6},          {"fb", Q::memory_used, kMebibyte},
    {"pviol", Q::power_throttled, 0.01},
};
// Columns of single reasons, as bits of NVML's mask.
constexpr std::pair<std::string_view, uint64_t> kReasonColumns[] = {
    {"sw_power_cap", 0x04},
    {"hw_slowdown", 0x08},
    {"sw_thermal_slowdown", 0x20},
    {"hw_thermal_slowdown", 0x40},
    {"hw_power_brake_slowdown", 0x80},
};

// "22.89 W", "80 %", "0x04"; nothing for "[N/A]", "[Not Supported]", "-".
std::optional<double> smi_number(std::string_view text) {
  double value = 0;
  if (text.starts_with("0x")) {
    uint64_t mask = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), mask, 16);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return double(mask);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || is_missing_value(value)) return std::nullopt;
  return value;
}

// "2024/10/30 18:42:33.189".
std::optional<double> smi_time(std::string_view text) {
  std::string date(text.substr(0, 64));
  std::replace(date.begin(), date.end(), '/', '-');
  return parse_date(date);
}

// What a reader of one form collects.
struct SmiRecord {
  DeviceSamples samples;
  std::set<std::string> names;
  std::optional<double> first_s, last_s;
  size_t rows = 0;
  std::vector<std::string> notes;
};

EvidenceFile smi_evidence(const SmiRecord& record, const std::string& name, const char* kind) {
  if (record.samples.empty()) throw Error("{}: no row of {} has a value", name, kind);
  EvidenceFile file;
  file.path = name;
  file.kind = kind;
  file.notes = record.notes;
  const size_t devices = record.samples.devices();
  file.setup.devices = int(devices);
  if (!record.names.empty()) file.setup.device = *record.names.begin();
  if (record.names.size() > 1) {
    file.notes.push_back(
        fmt::format("{}: {} kinds of devices; the means are of all", name, record.names.size()));
  }
  const double seconds =
      record.first_s && record.last_s ? std::max(0., *record.last_s - *record.first_s) : 0;
  const size_t samples = (record.rows + devices - 1) / devices;
  file.window = fmt::format("{} sample{} of {} device{}", samples, samples == 1 ? "" : "s", devices,
                            devices == 1 ? "" : "s");
  if (seconds > 0) file.window += " over " + pretty_time(seconds);
  record.samples.write(file, samples < kFewestForWindow ? Trust::instant : Trust::window, seconds);
  return file;
}

// --- Query CSV.

// Where the columns are.
struct QueryHeader {
  std::vector<std::pair<size_t, SmiColumn>> values;
  std::vector<std::pair<size_t, uint64_t>> reasons;
  std::optional<size_t> mask, time, device, model;
};

// Without the unit: "power.draw [W]" -> "power.draw".
std::string_view without_unit(std::string_view field) {
  const size_t bracket = field.find(" [");
  return bracket == field.npos ? field : field.substr(0, bracket);
}

std::optional<QueryHeader> query_header(std::string_view line) {
  if (line.find("utilization.") == line.npos && line.find("power.") == line.npos &&
      line.find("clocks") == line.npos && line.find("memory.used") == line.npos) {
    return std::nullopt;
  }
  QueryHeader header;
  const std::vector<std::string> fields = split_csv(line);
  std::optional<size_t> index;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string_view field = without_unit(fields[i]);
    if (field == "timestamp") header.time = i;
    if (field == "name" || field == "gpu_name") header.model = i;
    if (field == "uuid" || field == "gpu_uuid") header.device = i;
    if (field == "index" || field == "pci.bus_id" || field == "gpu_bus_id") index = i;
    const bool reasons =
        field.starts_with("clocks_throttle_reasons.") || field.starts_with("clocks_event_reasons.");
    if (!reasons) continue;
    const std::string_view reason = field.substr(field.find('.') + 1);
    if (reason == "active") header.mask = i;
    for (const auto& [known, bit] : kReasonColumns) {
      if (reason == known) header.reasons.emplace_back(i, bit);
    }
  }
  if (!header.device) header.device = index;
  std::set<Q> taken;
  for (const SmiColumn& column : kQueryColumns) {
    for (size_t i = 0; i < fields.size(); ++i) {
      if (without_unit(fields[i]) != column.name || !taken.insert(column.quantity).second) continue;
      header.values.emplace_back(i, column);
    }
  }
  if (header.values.empty() && !header.mask && header.reasons.empty()) return std::nullopt;
  return header;
}

uint64_t reasons_of(const QueryHeader& header, const std::vector<std::string>& fields) {
  if (header.mask && *header.mask < fields.size()) {
    const std::optional<double> mask = smi_number(fields[*header.mask]);
    return mask && *mask >= 0 && *mask < 1e15 ? uint64_t(*mask) : kNoReason;
  }
  uint64_t mask = header.reasons.empty() ? kNoReason : 0;
  for (const auto& [column, bit] : header.reasons) {
    if (column < fields.size() && fields[column] == "Active") mask |= bit;
  }
  return mask;
}

void read_query_row(const QueryHeader& header, const std::vector<std::string>& fields,
                    std::string_view device, SmiRecord& record) {
  for (const auto& [column, known] : header.values) {
    if (column >= fields.size()) continue;
    if (const auto value = smi_number(fields[column])) {
      record.samples.add(known.quantity, device, *value * known.scale, known.name);
    }
  }
  const uint64_t reasons = reasons_of(header, fields);
  if (reasons != kNoReason) {
    record.samples.add_clock_reasons(device, double(reasons), "clocks_event_reasons");
  }
  if (header.model && *header.model < fields.size()) record.names.insert(fields[*header.model]);
  ++record.rows;
}

SmiRecord read_query(std::string_view text, const std::string& name) {
  SmiRecord record;
  std::optional<QueryHeader> header;
  std::string last_time;
  size_t of_this_time = 0;  // rows: without a column for it, the order tells devices apart
  size_t skipped = 0;
  for_text_lines(text, [&](std::string_view line, size_t number) {
    if (auto again = query_header(line)) {
      header = std::move(again);
      return;
    }
    if (!header) return;
    const std::vector<std::string> fields = split_csv(line);
    if (fields.size() < 2 && header->values.size() > 1) {
      if (++skipped <= 3) {
        record.notes.push_back(fmt::format("{}: line {}: not a row of the table", name, number));
      }
      return;
    }
    if (header->time && *header->time < fields.size()) {
      const std::string& time = fields[*header->time];
      of_this_time = time == last_time ? of_this_time + 1 : 0;
      last_time = time;
      if (const auto seconds = smi_time(time)) {
        if (!record.first_s) record.first_s = seconds;
        record.last_s = seconds;
      }
    }
    const std::string device = header->device && *header->device < fields.size()
                                   ? fields[*header->device]
                                   : std::to_string(of_this_time);
    read_query_row(*header, fields, device, record);
  });
  return record;
}

// --- dmon.

std::vector<std::string_view> dmon_words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t begin = line.find_first_not_of(" \t,#");
    if (begin == line.npos) break;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(" \t,#"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

bool is_dmon_header(std::string_view line) {
  if (!line.starts_with('#')) return false;
  const std::vector<std::string_view> words = dmon_words(line);
  const auto has = [&words](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool first =
      !words.empty() && (words[0] == "gpu" || words[0] == "Date" || words[0] == "Time");
  return first && has("gpu") && (has("sm") || has("pwr") || has("pclk") || has("rxpci"));
}

void read_dmon_row(const std::vector<std::string_view>& columns,
                   const std::vector<std::string_view>& words, SmiRecord& record) {
  std::string_view device;
  double bytes = -1;
  for (size_t i = 0; i < words.size(); ++i) {
    if (columns[i] == "gpu") device = words[i];
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::optional<double> value = smi_number(words[i]);
    if (!value) continue;
    for (const SmiColumn& column : kDmonColumns) {
      if (columns[i] == column.name) {
        record.samples.add(column.quantity, device, *value * column.scale, column.name);
      }
    }
    if (columns[i] == "tviol") {  // a flag
      record.samples.add(Q::thermal_throttled, device, *value > 0 ? 1 : 0, "tviol");
    }
    if (columns[i] == "rxpci" || columns[i] == "txpci") bytes = std::max(0., bytes) + *value * 1e6;
  }
  if (bytes >= 0) record.samples.add(Q::pcie_bytes, device, bytes, "rxpci + txpci");
  ++record.rows;
}

SmiRecord read_dmon(std::string_view text, const std::string& name) {
  SmiRecord record;
  std::vector<std::string_view> columns;
  size_t skipped = 0;
  for_text_lines(text, [&](std::string_view line, size_t number) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.starts_with('#')) {
      if (is_dmon_header(line)) columns = dmon_words(line);
      return;
    }
    const std::vector<std::string_view> words = dmon_words(line);
    if (columns.empty() || words.size() != columns.size()) {
      if (!columns.empty() && ++skipped <= 3) {
        record.notes.push_back(fmt::format("{}: line {}: {} columns, not {}", name, number,
                                           words.size(), columns.size()));
      }
      return;
    }
    read_dmon_row(columns, words, record);
  });
  return record;
}

// --- The table: "| N/A 35C P0 70W / 400W | 12345MiB / 81920MiB | 97% Default |".

// The number before `unit`, from the left: 70 of "70W / 400W". The text after it is left.
std::optional<double> take_before(std::string_view& text, std::string_view unit) {
  const size_t at = text.find(unit);
  if (at == text.npos) return std::nullopt;
  size_t begin = at;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0 ||
                       text[begin - 1] == '.')) {
    --begin;
  }
  const std::optional<double> value = smi_number(text.substr(begin, at - begin));
  text.remove_prefix(at + unit.size());
  return value;
}

SmiRecord read_smi_table(std::string_view text) {
  SmiRecord record;
  std::string device;
  for_text_lines(text, [&](std::string_view line, size_t) {
    const std::vector<std::string> cells = split_cells(line);
    if (cells.size() != 3) return;
    std::string_view first = cells[0];
    std::string_view memory = cells[1];
    std::string_view load = cells[2];
    const auto index = smi_number(first);
    if (memory.find("MiB /") == memory.npos) {
      // "0  NVIDIA A100-SXM4-80GB   On" beside the bus's address.
      if (!index || memory.find(':') == memory.npos) return;
      device = std::to_string(int(std::min(*index, 1e6)));
      first.remove_prefix(std::min(first.find_first_not_of("0123456789 "), first.size()));
      const std::string model(first.substr(0, first.find("  ")));
      if (!model.empty()) record.names.insert(model);
      return;
    }
    const auto add = [&](Q quantity, const std::optional<double>& value, double scale,
                         const char* origin) {
      if (value) record.samples.add(quantity, device, *value * scale, origin);
    };
    add(Q::temperature, take_before(first, "C "), 1, "Temp");
    add(Q::power, take_before(first, "W"), 1, "Pwr:Usage");
    add(Q::power_limit, take_before(first, "W"), 1, "Pwr:Cap");
    add(Q::memory_used, take_before(memory, "MiB"), kMebibyte, "Memory-Usage");
    add(Q::memory_total, take_before(memory, "MiB"), kMebibyte, "Memory-Usage");
    add(Q::gpu_util, take_before(load, "%"), 0.01, "GPU-Util");
    ++record.rows;
  });
  return record;
}

}  // namespace

std::optional<EvidenceFile> read_nvidia_smi(std::string_view text, const std::string& name) {
  enum class Form { none, query, dmon, table } form = Form::none;
  std::string_view rest = text;
  for (size_t i = 0; i < kMostPreamble && form == Form::none && !rest.empty(); ++i) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > 4096) continue;
    if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (is_dmon_header(line)) form = Form::dmon;
    if (line.find("| NVIDIA-SMI ") != line.npos) form = Form::table;
    if (line.find('{') == line.npos && query_header(line)) form = Form::query;
  }
  switch (form) {
    case Form::query:
      return smi_evidence(read_query(text, name), name, "nvidia-smi query");
    case Form::dmon:
      return smi_evidence(read_dmon(text, name), name, "nvidia-smi dmon");
    case Form::table:
      return smi_evidence(read_smi_table(text), name, "nvidia-smi table");
    case Form::none:
      break;
  }
  return std::nullopt;
}

}  // namespace ridge
