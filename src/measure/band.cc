#include "measure/band.h"

#include <fmt/format.h>

#include <array>

namespace ridge {
namespace {

// Shares of the reference: the typical range, then what is possible at all.
struct Rule {
  std::string_view prefix;     // of the reading's id
  std::string_view reference;  // path of the base's number; empty: the reading's own path
  double low, high;
  double least, most;
};

// The first match holds. Typical shares are those of published runs on A100, H100, H200 and B200
// (notes with sources: docs/measure.md); "most" leaves room for a clock above the datasheet's and
// for timer error, nothing else.
constexpr Rule kRules[] = {
    {"HBM.read.plain", "levels.HBM.read_bandwidth", 0.86, 0.97, 0.2, 1.03},
    {"HBM.read", "levels.HBM.read_bandwidth", 0.88, 0.985, 0.2, 1.03},
    {"HBM.write", "levels.HBM.read_bandwidth", 0.84, 0.985, 0.2, 1.03},
    {"HBM.copy", "levels.HBM.read_bandwidth", 0.80, 0.93, 0.2, 1.03},
    {"HBM.triad", "levels.HBM.read_bandwidth", 0.82, 0.95, 0.2, 1.03},
    {"HBM.latency.tlb", "levels.HBM.latency", 0.9, 3.0, 0.5, 10},
    {"HBM.latency", "levels.HBM.latency", 0.85, 1.15, 0.5, 3},
    {"L2.latency.far", "levels.L2.latency", 1.0, 2.0, 0.9, 4},
    {"L2.latency", "levels.L2.latency", 0.85, 1.2, 0.5, 3},
    {"L2.read", "levels.L2.read_bandwidth", 0.6, 1.2, 0.2, 1.6},
    {"shared.read", "levels.L1.read_bandwidth", 0.93, 1.0, 0.3, 1.03},
    {"L1.read", "levels.L1.read_bandwidth", 0.90, 1.0, 0.3, 1.03},
    {"shared.latency", "levels.L1.latency", 0.6, 1.1, 0.3, 3},
    {"L1.latency", "levels.L1.latency", 0.85, 1.25, 0.3, 3},
    // Tensor peaks of datasheets are at the boost clock of long work; a burst may clock higher.
    {"peak.fp64.fma", "", 0.4, 0.52, 0.1, 0.6},  // the datasheet's fp64 is the tensor cores'
    {"peak.", "", 0.85, 1.08, 0.05, 1.12},
    {"gemm.", "", 0.60, 0.92, 0.05, 1.10},
    {"mma.", "", 0.5, 1.05, 0.02, 1.12},
    {"launch.", "", 0.5, 1.6, 0.05, 20},
    {"host.", "levels.host.read_bandwidth", 0.75, 0.95, 0.02, 1.02},
};

// What a CPU's core could move or wait at most and at least: bytes, or clocks. Three 64-byte loads
// a clock is more than any core of today does; latencies span 2 (an L1 that forwards) to a far
// memory behind two page walks.
struct CoreLimits {
  std::string_view level;
  double most_bytes_per_clock;
  double least_clocks, most_clocks;
};
constexpr CoreLimits kCoreLimits[] = {
    {"L1", 192, 2, 12}, {"L2", 128, 6, 80}, {"L3", 96, 12, 700}, {"DRAM", 64, 60, 5000}};
constexpr double kLeastBytesPerClock = 0.02;  // 60 MB/s at 3 GHz
constexpr double kAssumedClock = 3e9;

Maybe number_at(const Machine& machine, std::string_view path) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const std::string_view dtype = dtype_name(static_cast<DType>(i));
    if (path == fmt::format("peak.{}", dtype)) return machine.peak[i];
    if (path == fmt::format("sustained.{}", dtype)) return machine.sustained[i];
  }
  for (const Level& level : machine.levels) {
    if (path == fmt::format("levels.{}.read_bandwidth", level.name)) return level.read_bandwidth;
    if (path == fmt::format("levels.{}.latency", level.name)) return level.latency;
    if (path == fmt::format("levels.{}.capacity", level.name)) return level.capacity;
  }
  if (path == "launch.stream") return machine.launch.stream;
  if (path == "launch.graph") return machine.launch.graph;
  if (path == "launch.persistent") return machine.launch.persistent;
  if (path == "clock") return machine.clock;
  return std::nullopt;
}

// "peak.bf16.wgmma", "gemm.bf16", "mma.bf16" are all held against peak.bf16.
std::string reference_path(const Reading& reading, const Rule& rule) {
  if (!rule.reference.empty()) return std::string(rule.reference);
  if (!reading.path.empty() && !reading.path.starts_with("sustained.")) return reading.path;
  const size_t first = reading.id.find('.');
  const size_t second = reading.id.find('.', first + 1);
  const std::string dtype = reading.id.substr(first + 1, second - first - 1);
  return "peak." + dtype;
}

Judgement against(const Reading& reading, const Rule& rule, double reference) {
  Judgement judgement;
  judgement.reference = reference;
  judgement.typical_low = rule.low;
  judgement.typical_high = rule.high;
  const double share = reading.value / reference;
  const bool smaller_is_better = reading.quantity == Dimension::time;
  if (share < rule.least || share > rule.most) {
    judgement.verdict = ReadingVerdict::implausible;
    judgement.reason = fmt::format("{:.3g} of the reference; possible is {:g} to {:g}", share,
                                   rule.least, rule.most);
  } else if (share < rule.low) {
    judgement.verdict = smaller_is_better ? ReadingVerdict::fast : ReadingVerdict::slow;
  } else if (share > rule.high) {
    judgement.verdict = smaller_is_better ? ReadingVerdict::slow : ReadingVerdict::fast;
  } else {
    judgement.verdict = ReadingVerdict::good;
  }
  return judgement;
}

// A CPU has no datasheet here for its caches and memory: only what no core can do is known.
Judgement judge_cpu_level(const Reading& reading, const Machine& base) {
  Judgement judgement;
  for (const CoreLimits& limits : kCoreLimits) {
    if (!reading.id.starts_with(limits.level)) continue;
    const double clock = base.clock.value_or(kAssumedClock);
    if (reading.quantity == Dimension::time) {
      const double clocks = reading.value * clock;
      if (clocks >= limits.least_clocks && clocks <= limits.most_clocks) return judgement;
      judgement.reason = fmt::format("{:.3g} clocks; possible is {:g} to {:g}", clocks,
                                     limits.least_clocks, limits.most_clocks);
    } else if (reading.quantity == Dimension::bandwidth) {
      const bool one_core = reading.id.ends_with(".core");
      const double cores = one_core ? 1 : base.units.value_or(1);
      const double per_clock = reading.value / clock / cores;
      if (per_clock >= kLeastBytesPerClock / cores && per_clock <= limits.most_bytes_per_clock) {
        return judgement;
      }
      judgement.reason = fmt::format("{:.3g} bytes per clock and core; possible is up to {:g}",
                                     per_clock, limits.most_bytes_per_clock);
    } else {
      return judgement;
    }
    judgement.verdict = ReadingVerdict::implausible;
    return judgement;
  }
  return judgement;
}

}  // namespace

Judgement judge(const Reading& reading, const Machine& base) {
  if (!(reading.value > 0)) {  // NaN too
    return {ReadingVerdict::implausible, {}, 0, 0, "not a positive number"};
  }
  if (reading.quantity == Dimension::size || reading.quantity == Dimension::clock) return {};
  const bool cpu = base.kind == MachineKind::cpu;
  for (const Rule& rule : kRules) {
    if (!reading.id.starts_with(rule.prefix)) continue;
    if (cpu && !rule.prefix.starts_with("peak")) continue;
    const Maybe reference = number_at(base, reference_path(reading, rule));
    if (!reference) break;
    Judgement judgement = against(reading, rule, *reference);
    // A CPU's narrower instruction sets need not reach the peak of the widest.
    if (cpu && reading.path.empty() && reading.value < *reference) judgement = {};
    return judgement;
  }
  return cpu ? judge_cpu_level(reading, base) : Judgement{};
}

std::vector<std::string> contradictions(const Report& report) {
  std::vector<std::string> lines;
  const Reading* inner = nullptr;
  const Reading* inner_latency = nullptr;
  for (const char* level : {"L1", "L2", "L3", "DRAM", "HBM"}) {
    const Reading* read = report.find(fmt::format("{}.read", level));
    const Reading* latency = report.find(fmt::format("{}.latency", level));
    if (read && inner && read->low > inner->high) {
      lines.push_back(fmt::format("{} reads {} but {} inside it {}: one of them is wrong", level,
                                  quantity_text(read->quantity, read->value), inner->id,
                                  quantity_text(inner->quantity, inner->value)));
    }
    if (latency && inner_latency && latency->high < inner_latency->low) {
      lines.push_back(fmt::format("{} answers in {} but {} inside it in {}", level,
                                  quantity_text(latency->quantity, latency->value),
                                  inner_latency->id,
                                  quantity_text(inner_latency->quantity, inner_latency->value)));
    }
    if (read) inner = read;
    if (latency) inner_latency = latency;
  }
  return lines;
}

std::string reading_verdict_name(ReadingVerdict verdict) {
  constexpr std::array kNames = {"good", "slow", "fast", "implausible", "-"};
  return kNames[static_cast<size_t>(verdict)];
}

}  // namespace ridge
