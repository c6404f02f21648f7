#include "lab/lab_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "base/error.h"
#include "base/units.h"
#include "measure/cpu/noise.h"

namespace ridge {
namespace {

constexpr double kClockFell = 0.9;

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
  if (cuda ? experiment.on_cuda : experiment.on_cpu) return "";
  if (experiment.needs) return experiment.needs;
  return fmt::format("{} has no {} variant yet.", experiment.name, cuda ? "CUDA" : "CPU");
}

LabRun run_experiment(Lab& lab, const Experiment& experiment) {
  const auto start = std::chrono::steady_clock::now();
  const bool on_cpu = lab.options().device == LabDevice::cpu;
  const double clock = on_cpu ? chain_clock(lab.team()) : 0;
  LabRun run{&experiment, {}, {}, 0};
  run.result.sentence = why_not_on(experiment, lab.options().device);
  if (!run.result.sentence.empty()) return run;
  try {
    run.result = experiment.run(lab);
  } catch (const Error& error) {
    run.result.sentence = error.what();
  }
  const double after = on_cpu ? chain_clock(lab.team()) : 0;
  if (after < kClockFell * clock) {
    doubt_all(run.result,
              fmt::format("the clock fell from {:.2f} to {:.2f} GHz", clock / 1e9, after / 1e9));
  }
  if (!lab.ceilings_doubt().empty()) {
    doubt_all(run.result, "ceilings: " + lab.ceilings_doubt());
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
  LabReport report;
  const Machine& machine = lab.machine();
  report.device = machine.title;
  report.ceilings =
      fmt::format("{} from {}", pretty_rate(machine.memory().read_bandwidth.value_or(0)),
                  machine.memory().name);
  if (const Maybe peak = machine.peak_of(DType::fp32)) {
    report.ceilings += fmt::format(", {} in fp32", pretty_flop_rate(*peak));
  }
  report.date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  report.quick = lab.quick();
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
