// Device counters of dcgm-exporter: one row for each GPU, and one for each MIG instance of it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "diagnose/readers/device_samples.h"
#include "diagnose/readers/engine_metrics.h"

namespace ridge {
namespace {

using Q = Quantity;

struct DcgmField {
  std::string_view name;  // after DCGM_FI_
  Q quantity;
  double scale;
};
constexpr double kMiB = 1 << 20;
constexpr DcgmField kDcgmFields[] = {
    {"DEV_GPU_UTIL", Q::gpu_util, 0.01},
    {"PROF_GR_ENGINE_ACTIVE", Q::gr_active, 1},
    {"PROF_SM_ACTIVE", Q::sm_active, 1},
    {"PROF_SM_OCCUPANCY", Q::sm_occupancy, 1},
    {"PROF_PIPE_TENSOR_ACTIVE", Q::tensor_active, 1},
    {"PROF_DRAM_ACTIVE", Q::dram_active, 1},
    {"DEV_POWER_USAGE", Q::power, 1},
    {"DEV_POWER_MGMT_LIMIT", Q::power_limit, 1},
    {"DEV_ENFORCED_POWER_LIMIT", Q::power_limit, 1},
    {"DEV_SM_CLOCK", Q::sm_clock, 1e6},
    {"DEV_MAX_SM_CLOCK", Q::max_sm_clock, 1e6},
    {"DEV_GPU_TEMP", Q::temperature, 1},
    {"DEV_FB_USED", Q::memory_used, kMiB},
    {"DEV_FB_TOTAL", Q::memory_total, kMiB},
};
// Bytes/s, or bytes where the exporter declares a counter.
constexpr std::pair<std::string_view, Q> kDcgmLinks[] = {
    {"PROF_PCIE_TX_BYTES", Q::pcie_bytes},
    {"PROF_PCIE_RX_BYTES", Q::pcie_bytes},
    {"PROF_NVLINK_TX_BYTES", Q::nvlink_bytes},
    {"PROF_NVLINK_RX_BYTES", Q::nvlink_bytes},
};
// Known, and of no use here.
constexpr std::string_view kDcgmIgnored[] = {
    "DEV_MEM_CLOCK",
    "DEV_MEMORY_TEMP",
    "DEV_TOTAL_ENERGY_CONSUMPTION",
    "DEV_PCIE_REPLAY_COUNTER",
    "DEV_MEM_COPY_UTIL",
    "DEV_ENC_UTIL",
    "DEV_DEC_UTIL",
    "DEV_XID_ERRORS",
    "DEV_VGPU_LICENSE_STATUS",
    "DEV_COUNT",
    "DEV_PSTATE",
    "DEV_SLOWDOWN_TEMP",
    "DEV_SHUTDOWN_TEMP",
    "DEV_FAN_SPEED",
    "DEV_FB_FREE",
    "DEV_FB_RESERVED",
    "DEV_FB_USED_PERCENT",
    "DEV_NVLINK_BANDWIDTH_TOTAL",
    "DEV_POWER_VIOLATION",
    "DEV_THERMAL_VIOLATION",
    "DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DEV_CORRECTABLE_REMAPPED_ROWS",
    "DEV_ROW_REMAP_FAILURE",
    "DEV_CLOCK_THROTTLE_REASONS",
    "DEV_CLOCKS_EVENT_REASONS",
    "PROF_PIPE_FP64_ACTIVE",
    "PROF_PIPE_FP32_ACTIVE",
    "PROF_PIPE_FP16_ACTIVE",
};

std::string_view field_of(const MetricSample& sample) {
  constexpr std::string_view kPrefix = "DCGM_FI_";
  const std::string_view name = sample.name;
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : std::string_view();
}

std::string device_of(const MetricSample& sample) {
  if (const std::string_view uuid = sample.label("UUID"); !uuid.empty()) return std::string(uuid);
  const std::string_view host = sample.label("Hostname");
  return fmt::format("{}/{}", host.empty() ? sample.label("hostname") : host, sample.label("gpu"));
}

// The values of one field on one page, for every device.
using DeviceValues = std::map<std::string, double>;
using FieldValues = std::map<std::string_view, DeviceValues>;

// The row of the whole GPU where it has a value, else the mean of its MIG instances.
FieldValues values_of(const MetricsPage& page) {
  struct Rows {
    double whole = 0, parts = 0;
    size_t wholes = 0, instances = 0;
  };
  std::map<std::string_view, std::map<std::string, Rows>> fields;
  for (const MetricSample& sample : page.samples) {
    const std::string_view field = field_of(sample);
    if (field.empty() || is_missing_value(sample.value)) continue;
    Rows& rows = fields[field][device_of(sample)];
    const bool instance = !sample.label("GPU_I_ID").empty();
    (instance ? rows.parts : rows.whole) += sample.value;
    ++(instance ? rows.instances : rows.wholes);
  }
  FieldValues values;
  for (const auto& [field, devices] : fields) {
    for (const auto& [device, rows] : devices) {
      values[field][device] =
          rows.wholes > 0 ? rows.whole / double(rows.wholes) : rows.parts / double(rows.instances);
    }
  }
  return values;
}

double value_or(const FieldValues& values, std::string_view field, const std::string& device,
                double otherwise) {
  const auto found = values.find(field);
  if (found == values.end()) return otherwise;
  const auto at = found->second.find(device);
  return at == found->second.end() ? otherwise : at->second;
}

std::string_view type_of(const MetricsPage& page, std::string_view field) {
  for (const auto& [name, type] : page.types) {
    if (std::string_view(name).ends_with(field) && name.size() == field.size() + 8) return type;
  }
  return {};
}

// Both directions of PCIe and of NVLink, bytes/s.
void add_links(const std::vector<const MetricsPage*>& pages, const std::vector<FieldValues>& values,
               const MetricsSpan& span, DeviceSamples& samples, EvidenceFile& file) {
  std::map<Q, std::map<std::string, double>> rates;
  for (const auto& [field, quantity] : kDcgmLinks) {
    const bool counter = type_of(*pages.front(), field) == "counter";
    std::map<std::string, std::vector<double>> series;
    for (const FieldValues& page : values) {
      const auto found = page.find(field);
      if (found == page.end()) continue;
      for (const auto& [device, value] : found->second) series[device].push_back(value);
    }
    for (const auto& [device, readings] : series) {
      // Some exporters declare a counter and write a rate: a counter never falls.
      const bool rises = std::is_sorted(readings.begin(), readings.end());
      if (counter && rises) {
        if (span.seconds <= 0 || readings.size() < 2) {
          if (readings.back() > 0) {
            file.notes.push_back(
                fmt::format("DCGM_FI_{} is a counter: two snapshots give its rate", field));
          }
          continue;
        }
        rates[quantity][device] += (readings.back() - readings.front()) / span.seconds;
      } else {
        double sum = 0;
        for (const double reading : readings) sum += reading;
        rates[quantity][device] += sum / double(readings.size());
      }
    }
  }
  for (const auto& [quantity, devices] : rates) {
    const char* origin =
        quantity == Q::pcie_bytes ? "DCGM_FI_PROF_PCIE_TX_BYTES" : "DCGM_FI_PROF_NVLINK_TX_BYTES";
    for (const auto& [device, rate] : devices) samples.add(quantity, device, rate, origin);
  }
}

void add_page(const FieldValues& values, DeviceSamples& samples) {
  for (const DcgmField& field : kDcgmFields) {
    const auto found = values.find(field.name);
    if (found == values.end()) continue;
    for (const auto& [device, value] : found->second) {
      samples.add(field.quantity, device, value * field.scale,
                  fmt::format("DCGM_FI_{}", field.name));
    }
  }
  for (const char* field : {"DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS"}) {
    const auto found = values.find(field);
    if (found == values.end()) continue;
    for (const auto& [device, mask] : found->second) {
      samples.add_clock_reasons(device, mask, fmt::format("DCGM_FI_{}", field));
    }
  }
  const auto free = values.find("DEV_FB_FREE");
  if (free == values.end() || values.contains("DEV_FB_TOTAL")) return;
  for (const auto& [device, value] : free->second) {
    const double used = value_or(values, "DEV_FB_USED", device, -1);
    if (used < 0) continue;
    samples.add(Q::memory_total, device,
                (value + used + value_or(values, "DEV_FB_RESERVED", device, 0)) * kMiB,
                "DCGM_FI_DEV_FB_FREE");
  }
}

void note_faults(const FieldValues& first, const FieldValues& last, EvidenceFile& file) {
  const auto errors = last.find("DEV_XID_ERRORS");
  if (errors != last.end()) {
    for (const auto& [device, code] : errors->second) {
      if (code > 0) file.notes.push_back(fmt::format("{}: last XID error {:.0f}", device, code));
    }
  }
  for (const char* field : {"DEV_POWER_VIOLATION", "DEV_THERMAL_VIOLATION"}) {
    const auto found = last.find(field);
    if (found == last.end()) continue;
    for (const auto& [device, value] : found->second) {
      if (value <= value_or(first, field, device, value)) continue;
      file.notes.push_back(
          fmt::format("{}: DCGM_FI_{} rises: its clocks were lowered", device, field));
    }
  }
}

bool is_known_field(std::string_view field) {
  return std::any_of(std::begin(kDcgmFields), std::end(kDcgmFields),
                     [field](const DcgmField& known) { return known.name == field; }) ||
         std::any_of(std::begin(kDcgmLinks), std::end(kDcgmLinks),
                     [field](const auto& known) { return known.first == field; }) ||
         std::find(std::begin(kDcgmIgnored), std::end(kDcgmIgnored), field) !=
             std::end(kDcgmIgnored);
}

}  // namespace

EvidenceFile observe_dcgm(const std::vector<const MetricsPage*>& pages, const MetricsSpan& span) {
  EvidenceFile file;
  file.kind = "dcgm-exporter metrics";
  DeviceSamples samples;
  std::vector<FieldValues> values;
  std::set<std::string> unknown;
  bool instances = false;
  for (const MetricsPage* page : pages) {
    values.push_back(values_of(*page));
    add_page(values.back(), samples);
    for (const MetricSample& sample : page->samples) {
      const std::string_view field = field_of(sample);
      if (field.empty()) continue;
      if (file.setup.device.empty()) file.setup.device = sample.label("modelName");
      instances = instances || !sample.label("GPU_I_ID").empty();
      if (!is_known_field(field) && unknown.size() < 64) unknown.insert(sample.name.substr(0, 120));
    }
  }
  add_links(pages, values, span, samples, file);
  if (instances) {
    file.notes.push_back("MIG instances: rows of the whole GPU are used where they have values");
  }
  note_faults(values.front(), values.back(), file);
  if (samples.devices() > 0) file.setup.devices = int(samples.devices());
  samples.write(file, span.gauges(), span.seconds);
  file.unknown.assign(unknown.begin(), unknown.end());
  return file;
}

}  // namespace ridge
