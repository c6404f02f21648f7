#include "lab/lab_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/units.h"
#include "lab/lab_doubt.h"
#include "lab/lab_memory.h"
#include "lab/levels.h"
#include "machine/detect.h"

namespace ridge {
namespace {

size_t memory_index(const Machine& machine) {
  return size_t(&machine.memory() - machine.levels.data());
}

// Doubts every point that has no doubt yet.
void doubt_all(LabResult& result, const std::string& why) {
  if (!result.timed) return;
  for (LabSeries& series : result.series) {
    for (LabPoint& point : series.points) {
      if (point.predicted() && point.doubt.empty()) point.doubt = why;
    }
  }
}

}  // namespace

std::string why_not_on(const Experiment& experiment, LabDevice device) {
  const bool cuda = device == LabDevice::cuda;
  if ((cuda ? experiment.on_cuda : experiment.on_cpu) != nullptr) return "";
  if (experiment.needs) return experiment.needs;
  return fmt::format("{} has no {} variant yet.", experiment.name, cuda ? "CUDA" : "CPU");
}

std::string_view lab_device_name(LabDevice device) {
  return device == LabDevice::cuda ? "cuda" : "cpu";
}

std::string lab_command(const Experiment& experiment, LabDevice device) {
  return fmt::format("ridge lab {}{}", experiment.name,
                     device == LabDevice::cuda ? " --device cuda" : "");
}

namespace {

// Runs the experiment once, with the rates read before and after it. Returns which rate changed
// meanwhile; empty: none.
std::string run_between_rates(Lab& lab, const Experiment& experiment, LabRun& run) {
  const bool on_cpu = !lab.on_cuda();
  // --quick judges no times: its rates are those of the lab's beginning.
  const bool rates = on_cpu && experiment.ceilings && lab.options().ceilings && !lab.quick();
  constexpr double kFresh = 1;  // s: what the last experiment ended with
  if (rates && lab.rates_age() > kFresh) lab.read_rates();
  const LabRates before = lab.rates();
  std::string ceilings = lab.ceilings_doubt();
  const GpuMoment gpu = on_cpu ? GpuMoment() : gpu_moment();
  const PeakMemory peak;
  try {
    run.result = on_cpu ? experiment.on_cpu(lab) : experiment.on_cuda(lab);
  } catch (const Error& error) {
    run.result = {};
    run.result.sentence = error.what();
  }
  run.peak_bytes = peak.growth();
  if (!on_cpu) {
    const std::string why = gpu_doubt(gpu, gpu_moment(), lab.machine().clock.value_or(0));
    if (!why.empty()) doubt_all(run.result, why);
  }
  if (!ceilings.empty()) doubt_all(run.result, "rates read before: " + ceilings);
  if (!rates) return "";
  const LabRates& after = lab.read_rates();
  if (run.result.timed && before.read.size() == after.read.size()) {
    run.result.notes.push_back(
        fmt::format("Plain reads of memory: {} before the experiment, {} after it.",
                    pretty_rate(before.read[memory_index(lab.machine())]),
                    pretty_rate(after.read[memory_index(lab.machine())])));
  }
  return run.result.timed ? drift_between(lab.machine(), before, after, run.result.on_memory) : "";
}

}  // namespace

LabRun run_experiment(Lab& lab, const Experiment& experiment) {
  const auto start = std::chrono::steady_clock::now();
  const LabDevice device = lab.options().device;
  LabRun run;
  run.experiment = &experiment;
  run.device = device;
  run.announced_bytes = announced_bytes(experiment, device, lab.quick());
  run.result.sentence = why_not_on(experiment, device);
  if (run.result.sentence.empty()) run.result.sentence = why_no_room(lab, experiment);
  if (!run.result.sentence.empty()) return run;
  lab.say(fmt::format("holds at most {}", pretty_bytes(run.announced_bytes)));
  std::string drift;
  // Once more where a rate changed: whether points lie inside their bands is not looked at.
  for (int attempt = 0; attempt < (lab.quick() ? 1 : 2); ++attempt) {
    if (attempt > 0) lab.say("once more: " + drift);
    drift = run_between_rates(lab, experiment, run);
    if (drift.empty()) break;
  }
  if (!drift.empty()) doubt_all(run.result, drift);
  const double own = own_bytes(experiment, device, lab.quick());
  if (device == LabDevice::cpu && run.peak_bytes > own) {
    run.result.notes.push_back(fmt::format("It held {}, more than the {} that it announces.",
                                           pretty_bytes(run.peak_bytes), pretty_bytes(own)));
  }
  run.judgement = judge(run.result, lab.quick());
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

std::string lab_answer(const LabRun& run) {
  if (run.judgement.reason.empty()) return run.result.sentence;
  return fmt::format("{} ({}.)", run.result.sentence, run.judgement.reason);
}

LabReport lab_report(const Lab& lab) {
  LabReport report = lab_report(lab.options());
  if (!lab.on_cuda() && !lab.options().ceilings) return report;
  const Machine& machine = lab.machine();
  report.device = machine.title;
  report.ceilings =
      fmt::format("{} from {}", pretty_rate(machine.memory().read_bandwidth.value_or(0)),
                  machine.memory().name);
  if (const Maybe peak = machine.peak_of(DType::fp32)) {
    report.ceilings += fmt::format(", {} in fp32", pretty_flop_rate(*peak));
  }
  return report;
}

LabReport lab_report(const LabOptions& options) {
  LabReport report;
  report.backend = options.device;
  const bool cuda = options.device == LabDevice::cuda;
  std::ifstream info("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(info), {}};
  report.device = cuda ? "NVIDIA GPU" : parse_cpuinfo(text).model;
  report.ceilings = "no ceilings: none were probed";
  report.date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  report.quick = options.quick;
  return report;
}

Agreement agreement_of(const LabReport& report) {
  std::vector<LabResult> results;
  for (const LabRun& run : report.runs) results.push_back(run.result);
  return agreement_of(results);
}

double seconds_of(const LabReport& report) {
  double seconds = 0;
  for (const LabRun& run : report.runs) seconds += run.seconds;
  return seconds;
}

}  // namespace ridge
