#include "measure/cpu/peaks.h"

#include <fmt/format.h>

#include <algorithm>

#include "measure/cpu/kernels.h"

namespace ridge {
namespace {

Reading measure_one(ThreadTeam& team, const Sampling& sampling, double clock, std::string id,
                    double ops, double (*kernel)(long), const std::string& isa) {
  std::atomic<bool> wrong = false;
  const Samples samples = sample(team, sampling, [&](int, long repeats) {
    if (!(kernel(repeats) > 0)) wrong = true;  // also uses the result, so that the work stays
  });
  std::vector<double> rates;
  for (const double seconds : samples.seconds) rates.push_back(ops * team.size() / seconds);
  Reading reading = summarize(std::move(id), "", Dimension::rate, rates, "");
  reading.how =
      fmt::format("{}, independent chains on {}: {:.1f} operations per clock and core", isa,
                  team.size() == 1 ? "one core" : "all cores", reading.value / team.size() / clock);
  reading.doubt = wrong ? "the result of the chains is wrong" : samples.doubt;
  return reading;
}

// The fastest instruction set of a format gives the machine's number.
void give_path_to_fastest(const std::string& dtype, std::vector<Reading>& readings) {
  Reading* best = nullptr;
  for (Reading& reading : readings) {
    if (!reading.id.starts_with(fmt::format("peak.{}.", dtype))) continue;
    if (!best || reading.value > best->value) best = &reading;
  }
  if (best) best->path = "peak." + dtype;
}

}  // namespace

std::vector<Reading> measure_peaks(ThreadTeam& team, const Sampling& sampling, double clock,
                                   const StepProgress& progress,
                                   std::vector<std::string>& missing) {
  std::vector<Reading> found;
  for (const KernelSet& set : kernel_sets()) {
    // SSE2 and NEON where there is more.
    if (set.vector_bytes < std::min(32, kernel_sets().front().vector_bytes)) continue;
    progress("peaks " + set.isa);
    found.push_back(measure_one(team, sampling, clock, "peak.fp64." + set.isa, set.fma64_ops(),
                                set.fma64, set.isa));
    found.push_back(measure_one(team, sampling, clock, "peak.fp32." + set.isa, set.fma32_ops(),
                                set.fma32, set.isa));
  }
  for (const DotKernel& dot : dot_kernels(missing)) {
    progress(fmt::format("peaks {}", dot.isa));
    found.push_back(measure_one(team, sampling, clock, fmt::format("peak.{}.{}", dot.id, dot.isa),
                                dot.ops, dot.run, dot.isa));
  }
  for (const char* dtype : {"fp64", "fp32", "bf16", "int8"}) {
    give_path_to_fastest(dtype, found);
    if (std::none_of(found.begin(), found.end(), [&](const Reading& reading) {
          return reading.path == fmt::format("peak.{}", dtype);
        })) {
      missing.push_back(fmt::format("peak {}: the CPU has no instruction for it", dtype));
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Reading& a, const Reading& b) {
    return a.id.substr(0, a.id.rfind('.')) < b.id.substr(0, b.id.rfind('.'));
  });
  return found;
}

Reading measure_core_peak(ThreadTeam& one, const Sampling& sampling, double clock) {
  const KernelSet& set = kernel_sets().front();
  return measure_one(one, sampling, clock, "core.fp32", set.fma32_ops(), set.fma32, set.isa);
}

}  // namespace ridge
